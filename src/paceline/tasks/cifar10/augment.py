"""Augmentation of whole batches of uint8 pictures (N, channels, height, width).

Everything here works on arrays: a Python statement per picture would cost more than the network.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def random_crop(pictures: np.ndarray, pad: int, rng: np.random.Generator) -> np.ndarray:
    """Pad by reflection, then cut a window of the old size at a random place for each picture."""
    if pad == 0:
        return pictures
    num, _, height, width = pictures.shape
    padded = np.pad(pictures, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    rows, columns = rng.integers(0, 2 * pad + 1, size=(2, num))
    return windows[np.arange(num), :, rows, columns]


def mirror(pictures: np.ndarray, which: np.ndarray) -> np.ndarray:
    """The pictures with those in `which` (booleans) flipped left to right."""
    return np.where(which[:, None, None, None], pictures[..., ::-1], pictures)


def flip_choice(
    kind: str, samples: np.ndarray, epochs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Which pictures to flip. 'alternating' (Jordan 2024): a picture is flipped every other epoch,
    so two epochs show both sides of it exactly once; which side comes first is random."""
    coins = rng.integers(0, 2, size=len(samples)).astype(bool)
    if kind == "none":
        return np.zeros(len(samples), dtype=bool)
    if kind == "random":
        return coins
    first_side = (samples.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63)
    flipped: np.ndarray = (first_side + epochs.astype(np.uint64)) % np.uint64(2) == 1
    return flipped


def cutout(pictures: np.ndarray, side: int, rng: np.random.Generator) -> np.ndarray:
    """Blank a square (DeVries and Taylor 2017) with each picture's own mean colour."""
    if side == 0:
        return pictures
    num, _, height, width = pictures.shape
    centre_rows = rng.integers(0, height, size=(num, 1))
    centre_columns = rng.integers(0, width, size=(num, 1))
    low = side // 2
    rows = np.arange(height) - centre_rows + low
    columns = np.arange(width) - centre_columns + low
    inside = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[
        :, None
    ]
    colour = pictures.mean(axis=(2, 3), keepdims=True).astype(np.uint8)
    return np.where(inside[:, None], colour, pictures)
