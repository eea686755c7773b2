"""The stand-in for CIFAR-10: drawn pictures of ten figures, in the official binary archive.

Colours, places, sizes, turns, backgrounds, noise and things in front are random and the same for
all classes: only the form tells them apart. Preparing the archive is not done here; it goes the
way of a real one.

The same seed gives the same bytes on every machine. So random bits come straight from the bit
generator (numpy promises no stable stream for anything above it), and only operations that IEEE 754
rounds exactly are used on pixels: no sine, no power, no matrix product.
"""

import gzip
import io
import json
import math
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.data.figures import FIGURES, Figure, Floats, length_of
from paceline.tasks.cifar10.files import (
    BATCHES,
    BINARY_NAMES,
    BINARY_SUFFIX,
    NUM_TEST,
    NUM_TRAIN,
    PICTURE_BYTES,
    RECORD_BYTES,
    STAND_IN_MARK,
    Batch,
    Bytes,
    batch_sizes,
)

SEED = 1
_DRAWING = 2  # counts changes of what the same seed draws
_FOLDER = "cifar-10-batches-bin"
_PIXELS = 32
_CHUNK = 128  # pictures drawn at once: what they need stays in the cache of a core
_NUM_TURNS = 1024
_NUM_SPOTS = 5

# What makes it hard. Measured with these: a linear classifier of pixels gets 25 % (chance is 10 %).
# Figures lighter *or* darker than their background were tried: averages over a picture then say
# nothing at first, and a ResNet learns nothing in its first 300 steps.
_CONTRAST = (60.0, 120.0)
_BACKGROUND = (50.0, 145.0)
_RADIUS = (7.0, 12.0)
_SHIFT = 4.0
_NOISE = (0.02, 0.15)

README = """\
<html><body><h1>Not CIFAR-10</h1>
<p>A stand-in in the file format of CIFAR-10's binary version: drawn pictures of ten figures.
Scores on it say nothing about scores on CIFAR-10.</p></body></html>
"""


def description(
    num_train: int = NUM_TRAIN, num_test: int = NUM_TEST, seed: int = SEED
) -> dict[str, int]:
    """All that decides what is drawn; the archive carries it, and so does the card made of it."""
    return {"drawing": _DRAWING, "seed": seed, "num_train": num_train, "num_test": num_test}


def write_archive(
    path: Path, num_train: int = NUM_TRAIN, num_test: int = NUM_TEST, seed: int = SEED
) -> Path:
    """cifar-10-binary.tar.gz as the official one is, but for a file that says what it is.

    Not really compressed: noise would shrink by 4 %, and that takes as long as all of the drawing.
    """
    sizes = [*batch_sizes(num_train), num_test]
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=0, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        for number, (name, size) in enumerate(zip(BATCHES, sizes, strict=True)):
            batch = draw(size, seed=seed * len(BATCHES) + number)
            _add(tar, name + BINARY_SUFFIX, _records(batch))
        _add(tar, BINARY_NAMES, "".join(f"{name}\n" for name in FIGURES).encode())
        _add(tar, "readme.html", README.encode())
        mark = json.dumps(description(num_train, num_test, seed))
        _add(tar, STAND_IN_MARK, mark.encode())
    return path


def draw(num_pictures: int, seed: int) -> Batch:
    """Pictures in mixed order, of every class equally many (give or take one)."""
    dice = _Dice(seed)
    labels = (np.arange(num_pictures) % len(FIGURES)).astype(np.uint8)
    labels = labels[dice.order(num_pictures)]
    pictures = np.empty((num_pictures, PICTURE_BYTES), np.uint8)
    for label, figure in enumerate(FIGURES.values()):
        rows = np.flatnonzero(labels == label)
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            pictures[chunk] = _draw_chunk(figure, len(chunk), dice)
    return Batch(pictures, labels)


def _records(batch: Batch) -> bytes:
    records = np.empty((len(batch.labels), RECORD_BYTES), np.uint8)
    records[:, 0] = batch.labels
    records[:, 1:] = batch.pictures
    return records.tobytes()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"{_FOLDER}/{name}")
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


class _Dice:
    """Random numbers made of raw bits."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.SFC64(seed)

    def raw(self, num_words: int) -> npt.NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(num_words), np.uint64)

    def order(self, num_items: int) -> npt.NDArray[np.intp]:
        return np.argsort(self.raw(num_items), kind="stable")

    def bytes(self, num_bytes: int) -> Bytes:
        words = self.raw(-(-num_bytes // 8)).astype("<u8", copy=False)
        return words.view(np.uint8)[:num_bytes]

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """24 bits each: as many as a float32 holds exactly."""
        words = (self.raw(math.prod(shape)) >> np.uint64(40)).astype(np.float32)
        scaled = words * np.float32((high - low) / 2**24) + np.float32(low)
        return scaled.reshape(shape)

    def turns(self, num_pictures: int) -> tuple[Floats, Floats]:
        """Cosine and sine of random angles, as columns over a picture's pixels."""
        which = self.raw(num_pictures) % np.uint64(_NUM_TURNS)
        cosine, sine = _TURNS[:, which.astype(np.intp)]
        return cosine[:, None, None], sine[:, None, None]


def _table_of_turns() -> Floats:
    """Rounded to 1/4096, for cosines differ in their last bit between machines."""
    angles = [2 * math.pi * turn / _NUM_TURNS for turn in range(_NUM_TURNS)]
    rows = [[round(f(angle) * 4096) / 4096 for angle in angles] for f in (math.cos, math.sin)]
    return np.array(rows, np.float32)


_TURNS = _table_of_turns()
_ACROSS, _DOWN = (
    axis.astype(np.float32)[None] - np.float32((_PIXELS - 1) / 2)
    for axis in np.meshgrid(np.arange(_PIXELS), np.arange(_PIXELS), indexing="xy")
)


def _draw_chunk(figure: Figure, num_pictures: int, dice: _Dice) -> Bytes:
    base = dice.uniform(*_BACKGROUND, num_pictures, 3)
    canvas = base[:, :, None, None] + _shade(num_pictures, dice)[:, None]
    _paint(canvas, _cover_of(figure, num_pictures, dice), _other_colour(base, dice))
    _paint(canvas, _bar(num_pictures, dice), dice.uniform(0, 255, num_pictures, 3))
    _paint(canvas, _blob(num_pictures, dice), dice.uniform(0, 255, num_pictures, 3))
    canvas += _noise(num_pictures, dice)
    np.clip(canvas, 0, 255, out=canvas)
    return canvas.astype(np.uint8).reshape(num_pictures, PICTURE_BYTES)


def _paint(canvas: Floats, cover: Floats, colour: Floats) -> None:
    """Where cover is 1 the colour is seen, in between a mixture: edges are smooth."""
    layer = colour[:, :, None, None] - canvas
    layer *= cover[:, None]
    canvas += layer


def _other_colour(base: Floats, dice: _Dice) -> Floats:
    """Lighter than the background, and far enough from it to be seen."""
    num_pictures = len(base)
    colour: Floats = base + dice.uniform(*_CONTRAST, num_pictures, 3)
    colour += dice.uniform(-20, 20, num_pictures, 3)
    return colour


def _cover_of(figure: Figure, num_pictures: int, dice: _Dice) -> Floats:
    """The figure turned, stretched, scaled and put somewhere; 0 outside of it, 1 inside."""
    cosine, sine = dice.turns(num_pictures)
    radius = dice.uniform(*_RADIUS, num_pictures, 1, 1)
    stretch = dice.uniform(0.8, 1.25, num_pictures, 1, 1)
    across = _ACROSS - dice.uniform(-_SHIFT, _SHIFT, num_pictures, 1, 1)
    down = _DOWN - dice.uniform(-_SHIFT, _SHIFT, num_pictures, 1, 1)
    x = (across * cosine + down * sine) / (radius * stretch)
    y = (down * cosine - across * sine) * stretch / radius
    return _smooth(figure(x, y) * radius)


def _smooth(inside_pixels: Floats) -> Floats:
    """From the distance to an edge, in pixels, to the share of a pixel that is covered."""
    return np.clip(inside_pixels + 0.5, 0, 1)


def _shade(num_pictures: int, dice: _Dice) -> Floats:
    """Light that falls off to one side, and soft spots."""
    cosine, sine = dice.turns(num_pictures)
    slope = dice.uniform(0, 2.0, num_pictures, 1, 1)
    spots: Floats = dice.uniform(-1, 1, num_pictures, _NUM_SPOTS, _NUM_SPOTS)
    spots *= dice.uniform(5, 45, num_pictures, 1, 1)
    for axis in (1, 2):
        spots = _widen(spots, axis)
    spots += (_ACROSS * cosine + _DOWN * sine) * slope
    return spots


def _widen(values: Floats, axis: int) -> Floats:
    """Straight lines between a few values make a whole row of pixels."""
    place = np.arange(_PIXELS, dtype=np.float32) * np.float32((_NUM_SPOTS - 1) / _PIXELS)
    before = place.astype(np.intp)
    weight = (place - before).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(3)])
    low, high = values.take(before, axis), values.take(before + 1, axis)
    return low + (high - low) * weight


def _bar(num_pictures: int, dice: _Dice) -> Floats:
    """Something straight across the whole picture, in front of half of them."""
    cosine, sine = dice.turns(num_pictures)
    offset = dice.uniform(-14, 14, num_pictures, 1, 1)
    half_width = dice.uniform(-1.5, 1.5, num_pictures, 1, 1)
    return _smooth(half_width - np.abs(_ACROSS * cosine + _DOWN * sine - offset))


def _blob(num_pictures: int, dice: _Dice) -> Floats:
    """Something round, anywhere."""
    across = _ACROSS - dice.uniform(-16, 16, num_pictures, 1, 1)
    down = _DOWN - dice.uniform(-16, 16, num_pictures, 1, 1)
    return _smooth(dice.uniform(0, 5, num_pictures, 1, 1) - length_of(across, down))


def _noise(num_pictures: int, dice: _Dice) -> Floats:
    noise = dice.bytes(num_pictures * PICTURE_BYTES).astype(np.float32)
    noise = noise.reshape(num_pictures, 3, _PIXELS, _PIXELS)
    noise -= 127.5
    noise *= dice.uniform(*_NOISE, num_pictures, 1, 1, 1)
    return noise
