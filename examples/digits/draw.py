"""Draws the pictures of this example: `python draw.py` writes digits.npz. Seven segments, shaky."""

from pathlib import Path

import numpy as np

SEGMENTS = {  # from (row, column) to (row, column), in a box of 0 to 1
    "a": (0, 0, 0, 1),
    "b": (0, 1, 0.5, 1),
    "c": (0.5, 1, 1, 1),
    "d": (1, 0, 1, 1),
    "e": (0.5, 0, 1, 0),
    "f": (0, 0, 0.5, 0),
    "g": (0.5, 0, 0.5, 1),
}
DIGITS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]


def draw(digit: int, rng: np.random.Generator, side: int = 16) -> np.ndarray:
    """Each corner is somewhere near where it belongs, and every pixel has its noise."""
    picture = rng.normal(40, 40, (side, side))
    top, left = rng.uniform(1, 4, 2)
    height, width = rng.uniform(8, 11), rng.uniform(4, 8)
    for segment in DIGITS[digit]:
        ends = np.array(SEGMENTS[segment]) + rng.normal(0, 0.06, 4)
        for share in np.linspace(0, 1, 24):
            row = top + height * (ends[0] + share * (ends[2] - ends[0]))
            column = left + width * (ends[1] + share * (ends[3] - ends[1]))
            where = np.clip([round(row), round(column)], 0, side - 1)
            picture[where[0], where[1]] = rng.uniform(120, 255)
    return np.clip(picture, 0, 255).astype(np.uint8)


def main(path: Path = Path("digits.npz"), num: int = 3000) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 10, num)
    np.savez_compressed(path, pictures=np.stack([draw(d, rng) for d in labels]), labels=labels)
    print(f"wrote {path}: {num:,} pictures")


if __name__ == "__main__":
    main()
