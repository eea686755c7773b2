"""How far the clocks of hosts are apart, estimated from the run itself.

After each step all processes wait for each other, so they leave it at one moment; each writes its
line a little later. The difference of two hosts' lines is the offset of their clocks plus what
disturbed either of them. Disturbances go both ways and rarely twice by the same amount, so the
estimate is where the differences are densest (half-sample mode). With many lines that was mostly
closer than the median; with less than about ten lines on a busy machine neither is sure to a
millisecond, so the width of the differences is told beside it.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.report.trace.lines import ATTEMPT_STRIDE, Keys, RankLines

Numbers = NDArray[np.float64]

_GROUP_LINES = 50
_MOST_GROUPS = 400
_LEAST_GROUPS = 4
_LEAST_DRIFT = 0.0005
"""Seconds: a drift that moves less than that over the run is not told from noise."""


Points = tuple[list[float], list[float]]
"""Moments of a clock, and by how much it was ahead at each."""


@dataclass(frozen=True)
class Offset:
    """Seconds by which a host's clock is ahead of the reference."""

    points: dict[int, Points]
    """Of each attempt: between two of them a clock may be set."""
    uncertainty: float | None
    """Half the width of the densest half of the differences; None where nothing was compared."""

    def at(self, attempt: int, time: float) -> float:
        """At a moment of the host's clock; called for all that is drawn, so without numpy."""
        if attempt not in self.points:
            if not self.points:
                return 0.0
            attempt = min(self.points, key=lambda number: abs(number - attempt))
        times, seconds = self.points[attempt]
        after = bisect_right(times, time)
        if after == 0 or after == len(times):
            return seconds[0] if after == 0 else seconds[-1]
        share = (time - times[after - 1]) / (times[after] - times[after - 1])
        return (1 - share) * seconds[after - 1] + share * seconds[after]

    @property
    def mean_seconds(self) -> float | None:
        every = [value for _, seconds in self.points.values() for value in seconds]
        return sum(every) / len(every) if every else None


NO_OFFSET = Offset({}, None)


def estimate_offsets(ranks: list[RankLines]) -> dict[str, Offset]:
    """Of each host, against the host of the first rank."""
    by_host: dict[str, list[RankLines]] = {}
    for rank in ranks:
        by_host.setdefault(rank.host, []).append(rank)
    (first, reference), *others = [(host, _earliest(own)) for host, own in by_host.items()]
    offsets = {host: _offset(lines, reference) for host, lines in others}
    return {first: Offset({1: ([0.0], [0.0])}, 0.0), **offsets}


def _earliest(ranks: list[RankLines]) -> tuple[Keys, Numbers]:
    """When the first process of a host wrote each line: who is later was disturbed."""
    keys, place = np.unique(np.concatenate([rank.keys for rank in ranks]), return_inverse=True)
    times = np.full(len(keys), np.inf)
    np.minimum.at(times, place, np.concatenate([rank.times for rank in ranks]))
    return keys, times


def _offset(own: tuple[Keys, Numbers], reference: tuple[Keys, Numbers]) -> Offset:
    shared, here, there = np.intersect1d(own[0], reference[0], return_indices=True)
    if not len(shared):
        return NO_OFFSET
    times = own[1][here]
    apart = times - reference[1][there]
    attempts = shared // ATTEMPT_STRIDE
    points, left = {}, []
    for number in np.unique(attempts).tolist():
        is_own = attempts == number
        found = _points(times[is_own], apart[is_own])
        points[number] = found[0].tolist(), found[1].tolist()
        left.append(apart[is_own] - np.interp(times[is_own], *found))
    return Offset(points, half_width(np.concatenate(left)))


def _points(times: Numbers, apart: Numbers) -> tuple[Numbers, Numbers]:
    """One offset for the attempt, or a straight drift, or (a clock that was set) as it was."""
    num_groups = min(max(len(times) // _GROUP_LINES, 1), _MOST_GROUPS)
    groups = np.array_split(np.arange(len(times)), num_groups)
    middles = np.array([np.median(times[group]) for group in groups])
    found = np.array([densest(apart[group]) for group in groups])
    ends = np.array([times.min(), times.max()])
    constant = np.full(2, densest(apart))
    if num_groups < _LEAST_GROUPS or ends[0] == ends[1]:
        return ends, constant
    line = _drift(times, apart, groups)
    fits = np.interp(middles, ends, constant), np.interp(middles, ends, line)
    errors = [float(np.median(np.abs(found - fit))) for fit in fits]
    if float(np.abs(found - fits[1]).max()) > 20 * max(min(errors), _LEAST_DRIFT):
        return middles, found
    is_drift = abs(line[1] - line[0]) > _LEAST_DRIFT and errors[1] < 0.5 * errors[0]
    return (ends, line) if is_drift else (ends, constant)


def _drift(times: Numbers, apart: Numbers, groups: list[NDArray[np.intp]]) -> Numbers:
    """At the first and the last moment. A drift blurs the densest place of a group, so what was
    found is taken out and looked for once more."""
    passed = times - times.min()
    middles = np.array([np.median(passed[group]) for group in groups])
    first, second = np.triu_indices(len(groups), 1)
    slope = 0.0
    for _ in range(3):
        left = apart - slope * passed
        found = np.array([densest(left[group]) for group in groups])
        rises = (found[second] - found[first]) / (middles[second] - middles[first])
        slope += float(np.median(rises))
    begin = densest(apart - slope * passed)
    return np.array([begin, begin + slope * passed.max()])


def densest(values: Numbers) -> float:
    """The half-sample mode: the densest half of the densest half, and so on."""
    left = np.sort(values)
    while len(left) > 3:
        start, count = _densest_half(left)
        left = left[start : start + count]
    if len(left) == 3:
        left = left[:2] if left[1] - left[0] < left[2] - left[1] else left[1:]
    return float(left.mean())


def half_width(values: Numbers) -> float:
    ordered = np.sort(values)
    start, count = _densest_half(ordered)
    return float(ordered[start + count - 1] - ordered[start]) / 2


def _densest_half(ordered: Numbers) -> tuple[int, int]:
    count = (len(ordered) + 1) // 2
    widths = ordered[count - 1 :] - ordered[: len(ordered) - count + 1]
    return int(widths.argmin()), count
