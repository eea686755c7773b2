"""Slopes against noise: what a curve does at its end, and whether that is more than chance."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LEAST_POINTS = 4
"""With fewer, a slope cannot be told from noise."""
LAST_SHARE = 1 / 3
"""Of a curve: what counts as its end."""
_LEAST_AFTER_BEND = 10


def _empty() -> Numbers:
    return np.empty(0)


@dataclass(frozen=True)
class Points:
    """A curve by step."""

    steps: Numbers = field(default_factory=_empty)
    values: Numbers = field(default_factory=_empty)

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> "Points":
        steps, values = np.array([*points], dtype=np.float64).reshape(-1, 2).T
        return cls(steps, values)

    def __len__(self) -> int:
        return len(self.steps)

    def listed(self, most: int = 500) -> list[list[float]]:
        """Few enough for a JSON file; the last one is always among them."""
        stride = max(1, math.ceil(len(self) / most))
        places = [*range(0, len(self), stride)]
        if len(self) and places[-1] != len(self) - 1:
            places.append(len(self) - 1)
        return [[int(self.steps[n]), float(self.values[n])] for n in places]

    def near(self, step: float) -> float:
        return float(self.values[np.argmin(np.abs(self.steps - step))])


@dataclass(frozen=True)
class Trend:
    slope: float
    """Per step: the median of the slopes between all pairs of points (Theil and Sen)."""
    slope_error: float
    noise: float
    """Standard deviation of the points around the line."""
    level: float
    """Of the line at the last point."""
    first_step: float
    last_step: float
    num_points: int

    @property
    def is_certain(self) -> bool:
        """More than chance: roughly Student's t at 95 % for so many points."""
        return abs(self.slope) > (2 + 5 / (self.num_points - 2)) * self.slope_error

    @property
    def is_doubtful(self) -> bool:
        """Perhaps chance, perhaps not: too few points, or too much scatter, to be sure."""
        return not self.is_certain and abs(self.slope) > 1.5 * self.slope_error

    def gain(self, num_steps: float) -> float:
        return self.slope * num_steps

    @property
    def rises(self) -> bool:
        return self.is_certain and self.slope > 0

    @property
    def falls(self) -> bool:
        return self.is_certain and self.slope < 0


def trend(steps: Numbers, values: Numbers) -> Trend | None:
    """None where there are too few points to tell a slope from noise."""
    known = np.abs(values) < 1e100
    x, y = steps[known], values[known]
    if len(x) < LEAST_POINTS or x[0] == x[-1]:
        return None
    first, second = np.triu_indices(len(x), k=1)
    apart = x[second] != x[first]
    slopes = (y[second] - y[first])[apart] / (x[second] - x[first])[apart]
    slope = float(np.median(slopes))
    rest = y - slope * x
    level = float(np.median(rest))
    noise = float(np.sqrt(((rest - level) ** 2).sum() / (len(x) - 2)))
    return Trend(
        slope=slope,
        slope_error=noise / (math.sqrt(len(x)) * float(np.std(x))),
        noise=noise,
        level=level + slope * float(x[-1]),
        first_step=float(x[0]),
        last_step=float(x[-1]),
        num_points=len(x),
    )


def trend_at_end(points: Points) -> Trend | None:
    """Of the last third of a curve; of less where the curve flattens within it, because a straight
    line would end above the last points and go on rising."""
    steps, values = points.steps, points.values
    count = max(LEAST_POINTS, math.ceil(LAST_SHARE * len(steps)))
    found = trend(steps[-count:], values[-count:])
    while found is not None and count >= 2 * _LEAST_AFTER_BEND:
        count = math.ceil(count / 2)
        later = trend(steps[-count:], values[-count:])
        if later is None or not _flattens(found, later):
            break
        found = later
    return found


def _flattens(whole: Trend, later: Trend) -> bool:
    return whole.is_certain and abs(later.slope) + 2 * later.slope_error < abs(whole.slope)


def in_groups(steps: Numbers, values: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Neighbours averaged, so that no more than so many points are left."""
    if len(steps) <= most:
        return steps, values
    cuts = np.unique(np.linspace(0, len(steps), most + 1).astype(int))[:-1]
    sizes = np.diff([*cuts, len(steps)])
    return np.add.reduceat(steps, cuts) / sizes, np.add.reduceat(values, cuts) / sizes
