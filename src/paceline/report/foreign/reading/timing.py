"""How long steps took, from what lines tell: printed times, means of epochs, or time stamps."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from paceline.report.foreign.run import Curve, ForeignRun, Points

_PAUSE = 5.0
"""A gap of so many median steps is not a step."""
_ROUGH_SECONDS = 10.0
_MOST_RATES = 50_000
_DIFFERENT = 0.15
"""Times of single steps are further than this from the mean of all; printed means are not."""
_HOW_STAMPS = "time stamps of the lines"
_HOW_WALL = "from the first to the last time stamp of its progress"


class Progress(NamedTuple):
    """What one line says of training; None is what it does not say."""

    step: int
    loss: float | None = None
    rate: float | None = None
    seconds: float | None = None
    """Of a step."""
    input_seconds: float | None = None
    """Of a step, waiting for its batch."""
    units_per_second: float | None = None
    stamp: float | None = None
    scores: Mapping[str, float] = MappingProxyType({})
    num_steps: int | None = None
    """That the time is the mean of, where the line says so; else those since the line before."""


class _Gap(NamedTuple):
    first: int
    num_steps: int
    seconds: float
    last: int


class EpochMean(NamedTuple):
    """Of one epoch, up to its last printed line."""

    num_steps: int
    step_seconds: float
    input_seconds: float | None


class Pace:
    """Sums are exact although of very many timings only some are kept."""

    def __init__(self, is_sample: bool) -> None:
        self._is_sample = is_sample
        self._first: Progress | None = None
        self._before: int | None = None
        self._begins_at = 0
        self._spacing: dict[int, int] = {}
        self._times = Curve()
        self._slowest: tuple[int, float] | None = None
        self._num_steps = 0
        """That lines tell of, or that passed between two of them."""
        self._num_timed = 0
        self._total = 0.0
        self._num_waits = 0
        self._waits = 0.0
        self._units = 0.0
        self._unit_time = 0.0
        self._rates: dict[int, float] = {}
        """Units per second by step, where no line tells how long its steps took."""
        self._stamps = Curve()
        self._breaks: set[int] = set()
        self._last_stamp: float | None = None
        self.began: float | None = None
        self.epochs: dict[int, EpochMean] = {}
        """Means over all steps, which win over printed single times."""

    def add(self, told: Progress) -> None:
        if self._before is None:
            self._begins_at = told.step
            # How many steps the first line stands for is known when the second comes.
            self._first = told
        else:
            spacing = told.step - self._before
            if len(self._spacing) < 1000 or spacing in self._spacing:
                self._spacing[spacing] = self._spacing.get(spacing, 0) + 1
            if self._first is not None:
                first = self._first
                covered = first.num_steps or max(1, min(first.step, spacing))
                self._count(first, covered)
                self._num_steps += covered
                self._first = None
            self._count(told, told.num_steps or min(spacing, self.spacing or spacing))
            self._num_steps += told.num_steps or self._passed(spacing)
        self._before = told.step
        if told.stamp is not None:
            self.began = told.stamp if self.began is None else self.began
            self._stamps.add(told.step, told.stamp)
            self._last_stamp = told.stamp

    def _passed(self, spacing: int) -> int:
        """Steps since the line before: at the end of an epoch a few more than a line tells of; of
        lines that were cut out of a log nothing is counted."""
        usual = self.spacing or spacing
        return spacing if spacing < 2 * usual else usual

    def _count(self, told: Progress, num_steps: int) -> None:
        seconds, rate = told.seconds, told.units_per_second
        if seconds is not None and 0 < seconds < 1e6:
            self._times.add(told.step, seconds)
            if self._slowest is None or seconds > self._slowest[1]:
                self._slowest = (told.step, seconds)
            self._num_timed += num_steps
            self._total += num_steps * seconds
            if told.input_seconds is not None and 0 <= told.input_seconds < 1e6:
                self._num_waits += num_steps
                self._waits += num_steps * told.input_seconds
        if rate is not None and 0 < rate < 1e15:
            # Without a time per step, steps are taken to be of one size.
            spent = num_steps * seconds if seconds else num_steps / rate
            self._unit_time += spent
            self._units += rate * spent
            if not seconds and len(self._rates) < _MOST_RATES:
                self._rates[told.step] = rate

    def interrupted(self) -> None:
        """Something else than a step was done after the line before."""
        if self._before is not None and len(self._breaks) < 100_000:
            self._breaks.add(self._before)

    def until(self, stamp: float) -> None:
        self._last_stamp = stamp if self._last_stamp is None else max(self._last_stamp, stamp)

    @property
    def spacing(self) -> int | None:
        """Steps between lines, as most are."""
        if not self._spacing:
            return None
        return max(self._spacing, key=lambda steps: (self._spacing[steps], -steps))

    @property
    def input_share(self) -> float | None:
        """Of the printed times, what was waiting for a batch."""
        if not self._total or self._num_waits != self._num_timed:
            return None
        return min(self._waits / self._total, 1.0)

    def fill(self, run: ForeignRun) -> None:
        if self._first is not None:
            self._count(self._first, self._first.num_steps or 1)
            self._num_steps += self._first.num_steps or 1
            self._first = None
        run.print_every_steps = run.print_every_steps or self.spacing
        if self.spacing and self._begins_at > 2 * self.spacing:
            run.first_step = self._begins_at
        if self._unit_time and run.units_per_second is None:
            run.units_per_second = self._units / self._unit_time
        stamps = self._stamps.points
        run.begin_time, run.end_time = self.began, self._last_stamp
        if self._last_stamp is not None and self.began is not None and run.wall_seconds is None:
            run.wall_seconds = max(self._last_stamp - self.began, 0.0) or None
            run.wall_how = _HOW_WALL
        if self.epochs:
            self._by_epochs(run)
        elif self._num_timed:
            self._by_times(run)
        elif len(stamps) > 1:
            self._by_stamps(run, stamps)

    def _by_times(self, run: ForeignRun) -> None:
        times = run.step_times
        times.curve, times.slowest = self._times, self._slowest
        times.steps_per_timing = 1 if self._is_sample else self.spacing or 1
        times.is_sample = self._is_sample and (self.spacing or 1) > 1
        times.num_steps = max(self._num_steps, self._num_timed)
        times.total_seconds = times.num_steps * self._total / self._num_timed
        self._heed_stamps(run)
        if self.input_share is not None:
            times.input_seconds = self.input_share * times.total_seconds

    def _heed_stamps(self, run: ForeignRun) -> None:
        """Lines may tell of the slow steps alone; no step can have taken what no clock shows."""
        stamps, times = self._stamps.points, run.step_times
        num_steps = stamps[-1][0] - stamps[0][0] if len(stamps) > 1 else 0
        if num_steps < times.num_steps / 2 or not times.num_steps:
            return
        most = stamps[-1][1] - stamps[0][1] - (run.evaluation_seconds or 0.0)
        if 0 < most < num_steps * times.total_seconds / times.num_steps:
            times.num_steps, times.total_seconds = num_steps, most
            times.how += "; all steps together by the time stamps, which show less than the lines"

    def _by_epochs(self, run: ForeignRun) -> None:
        means, times = list(self.epochs.values()), run.step_times
        times.curve, times.slowest = self._times, self._slowest
        times.num_steps = sum(one.num_steps for one in means)
        times.total_seconds = sum(one.num_steps * one.step_seconds for one in means)
        spacing, mean = self.spacing or 1, times.mean_seconds or 0.0
        printed = self._total / self._num_timed if self._num_timed else mean
        is_single = self._is_sample or abs(printed - mean) > _DIFFERENT * mean
        times.is_sample = is_single and spacing > 1
        times.steps_per_timing = 1 if is_single else spacing
        waits = [m.num_steps * m.input_seconds for m in means if m.input_seconds is not None]
        if len(waits) == len(means):
            times.input_seconds = sum(waits)
        elif self.input_share is not None:
            times.input_seconds = self.input_share * times.total_seconds

    def _by_stamps(self, run: ForeignRun, stamps: Points) -> None:
        gaps = list(_gaps(stamps, self._breaks))
        if not gaps:
            return
        clean = [gap for gap in gaps if gap.first not in self._breaks]
        typical = median(gap.seconds / gap.num_steps for gap in clean or gaps)
        steps = [gap for gap in clean if gap.seconds <= _PAUSE * typical * gap.num_steps]
        known = {gap.first for gap in steps}
        others = [gap for gap in gaps if gap.first not in known]
        times = run.step_times
        times.how = _HOW_STAMPS
        times.steps_per_timing = max(1, round(median(gap.num_steps for gap in steps or gaps)))
        for gap in steps:
            times.add(gap.last, gap.seconds / gap.num_steps)
        times.num_steps = sum(gap.num_steps for gap in gaps)
        times.total_seconds = sum(gap.seconds for gap in steps) + sum(
            min(gap.seconds, typical * gap.num_steps) for gap in others
        )
        pauses = sum(gap.seconds for gap in gaps) - times.total_seconds
        run.pause_seconds = pauses if pauses > 0.01 * times.total_seconds else None
        if (rate := self._rate_between(stamps, typical)) is not None:
            run.units_per_second = rate

    def _rate_between(self, stamps: Points, typical_seconds: float) -> float | None:
        """Of the time in which steps were done, as their length is: a night in which a laptop
        slept is in the printed rate of one line."""
        units = seconds = 0.0
        for before, now in pairwise(stamps):
            gap, num_steps = now[1] - before[1], now[0] - before[0]
            is_pause = before[0] in self._breaks or gap > _PAUSE * typical_seconds * num_steps
            if now[0] in self._rates and gap > 0 and not is_pause:
                units += self._rates[now[0]] * gap
                seconds += gap
        return units / seconds if seconds else None


def _gaps(stamps: Points, breaks: set[int]) -> Iterator[_Gap]:
    """Between lines; stamps of whole seconds are taken further apart, or rounding would count."""
    is_rough = all(time == int(time) for _, time in stamps)
    shortest = _ROUGH_SECONDS if is_rough else 0.0
    start = stamps[0]
    for before, now in pairwise(stamps):
        if now[0] <= before[0] or now[1] < before[1]:  # a clock may have been set back
            start = now
            continue
        if before[0] in breaks or now[0] in breaks or now[1] - start[1] > shortest:
            if now[1] > start[1]:
                yield _Gap(start[0], now[0] - start[0], now[1] - start[1], now[0])
            start = now
    last = stamps[-1]
    if last[0] > start[0] and last[1] > start[1]:
        yield _Gap(start[0], last[0] - start[0], last[1] - start[1], last[0])
