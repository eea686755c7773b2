"""A curve by step that stays small however long the log is."""

import math
from dataclasses import dataclass, field

Points = list[tuple[int, float]]

_MOST_POINTS = 4000


@dataclass
class Curve:
    """Points in the order in which they were logged; of very many, evenly some and the last."""

    _kept: Points = field(default_factory=list)
    _stride: int = 1
    _last: tuple[int, float] | None = None
    num_points: int = 0
    """How many were logged, kept or not."""
    first_not_finite: int | None = None
    """The first step whose value was infinite or not a number."""

    def add(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            if self.first_not_finite is None:
                self.first_not_finite = step
            return
        if self.num_points % self._stride == 0:
            self._kept.append((step, value))
        self._last = (step, value)
        self.num_points += 1
        if len(self._kept) > 2 * _MOST_POINTS:
            self._kept = self._kept[::2]
            self._stride *= 2

    def drop_from(self, step: int) -> None:
        """Forget what was done again after a restart."""
        self._kept = [point for point in self._kept if point[0] < step]
        self._last = self._kept[-1] if self._kept else None
        # Keeps the count a multiple of the stride, so that the next point is kept again.
        self.num_points = len(self._kept) * self._stride
        if self.first_not_finite is not None and self.first_not_finite >= step:
            self.first_not_finite = None

    @property
    def points(self) -> Points:
        if self._last is None or self._last == self._kept[-1]:
            return self._kept
        return [*self._kept, self._last]

    @property
    def last(self) -> tuple[int, float] | None:
        return self._last

    def __bool__(self) -> bool:
        return self._last is not None


def shown(points: Points, most: int = 500) -> list[list[float]]:
    """Few enough points for a plot or a JSON file; the last one is always among them."""
    stride = max(1, math.ceil(len(points) / most))
    some = points[::stride]
    if points and some[-1] != points[-1]:
        some = [*some, points[-1]]
    return [[step, value] for step, value in some]


def value_near(points: Points, step: int) -> float:
    return min(points, key=lambda point: abs(point[0] - step))[1]
