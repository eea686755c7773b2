"""Ten figures that stand-ins for pictures are drawn from: how deep inside each a point lies.

Only operations that IEEE 754 rounds exactly are used, so that every machine draws the same bytes.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]  # float32 throughout; numpy's stubs lose that at every step
Figure = Callable[[Floats, Floats], Floats]


def length_of(x: Floats, y: Floats) -> Floats:
    length: Floats = np.sqrt(x * x + y * y)
    return length


def _box(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x), np.abs(y))


def _disc(x: Floats, y: Floats) -> Floats:
    return 0.85 - length_of(x, y)


def _ring(x: Floats, y: Floats) -> Floats:
    return 0.2 - np.abs(length_of(x, y) - 0.75)


def _square(x: Floats, y: Floats) -> Floats:
    return 0.75 - _box(x, y)


def _frame(x: Floats, y: Floats) -> Floats:
    return 0.18 - np.abs(_box(x, y) - 0.66)


def _half_planes(x: Floats, y: Floats, num_sides: int) -> list[Floats]:
    """How far a point is out in each direction of a regular polygon."""
    angles = [2 * math.pi * side / num_sides for side in range(num_sides)]
    normals = [(round(math.cos(a) * 4096) / 4096, round(math.sin(a) * 4096) / 4096) for a in angles]
    return [x * np.float32(right) + y * np.float32(down) for right, down in normals]


def _triangle(x: Floats, y: Floats) -> Floats:
    first, second, third = _half_planes(x, y, 3)
    return 0.5 - np.maximum(np.maximum(first, second), third)


def _star(x: Floats, y: Floats) -> Floats:
    """Five points: whatever is out in one direction at most."""
    most, second = (np.full_like(x, -np.inf) for _ in range(2))
    for out in _half_planes(x, y, 5):
        second = np.maximum(second, np.minimum(most, out))
        most = np.maximum(most, out)
    return 0.36 - second


def _cross(x: Floats, y: Floats) -> Floats:
    wide, narrow = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.minimum(0.95 - wide, 0.25 - narrow)


def _crescent(x: Floats, y: Floats) -> Floats:
    bite = length_of(x - 0.5, y) - 0.75
    return np.minimum(0.95 - length_of(x, y), bite)


def _wave(x: Floats) -> Floats:
    """Up and down in straight lines, from -0.25 to 0.25, once in 0.75."""
    turns = x * 1 / 0.75
    height: Floats = 0.25 - np.abs(turns - np.floor(turns) - 0.5)
    height *= 0.75
    return height


def _stripes(x: Floats, y: Floats) -> Floats:
    return np.minimum(0.95 - length_of(x, y), _wave(x))


def _checker(x: Floats, y: Floats) -> Floats:
    fields: Floats = _wave(x) * _wave(y) * 6  # back to about the slope of a distance
    return np.minimum(0.95 - length_of(x, y), fields)


FIGURES: dict[str, Figure] = {
    "disc": _disc,
    "ring": _ring,
    "square": _square,
    "frame": _frame,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "crescent": _crescent,
    "stripes": _stripes,
    "checker": _checker,
}
