"""Slopes against noise: what a curve does at its end, and whether that is more than chance."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_LEAST_POINTS = 4


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
    if len(x) < _LEAST_POINTS or x[0] == x[-1]:
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


def last_part(steps: Numbers, values: Numbers, share: float) -> tuple[Numbers, Numbers]:
    """The points of the last share of a curve, but at least as many as a trend needs."""
    count = max(_LEAST_POINTS, math.ceil(share * len(steps)))
    return steps[-count:], values[-count:]


def in_groups(steps: Numbers, values: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Neighbours averaged, so that no more than so many points are left."""
    if len(steps) <= most:
        return steps, values
    cuts = np.unique(np.linspace(0, len(steps), most + 1).astype(int))[:-1]
    sizes = np.diff([*cuts, len(steps)])
    return np.add.reduceat(steps, cuts) / sizes, np.add.reduceat(values, cuts) / sizes
