"""What the log of another tool says about a run, as plain data.

Whatever the tool, its reader fills one `ForeignRun`; what the log does not say stays None or empty.
No file is read here and nothing is judged.
"""

import math
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from paceline.report.facts.facts import Failed
from paceline.report.foreign.counters.counters import Counters

Points = list[tuple[int, float]]

_MOST_POINTS = 4000
_LARGEST_STEP = 1 << 60


@dataclass
class Curve:
    """Points in the order in which they were logged; of very many, evenly some and the last."""

    _steps: "array[int]" = field(default_factory=lambda: array("q"))
    _values: "array[float]" = field(default_factory=lambda: array("d"))
    """16 bytes a point: a directory may hold a thousand runs with a hundred curves each."""
    _stride: int = 1
    _last: tuple[int, float] | None = None
    num_points: int = 0
    """How many were logged, kept or not."""
    first_not_finite: int | None = None
    """The first step whose value was infinite or not a number."""
    not_finite_from: int | None = None
    """The step from which on no value was a number."""

    def add(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            if self.first_not_finite is None:
                self.first_not_finite = step
            if self.not_finite_from is None:
                self.not_finite_from = step
            return
        self.not_finite_from = None
        if not -_LARGEST_STEP < step < _LARGEST_STEP:
            return  # a damaged line
        if self.num_points % self._stride == 0:
            self._steps.append(step)
            self._values.append(value)
        self._last = (step, value)
        self.num_points += 1
        if len(self._steps) > 2 * _MOST_POINTS:
            self._steps, self._values = self._steps[::2], self._values[::2]
            self._stride *= 2

    def drop_from(self, step: int) -> None:
        """Forget what was done again after a restart."""
        kept = [point for point in zip(self._steps, self._values, strict=True) if point[0] < step]
        self._steps = array("q", [place for place, _ in kept])
        self._values = array("d", [value for _, value in kept])
        self._last = kept[-1] if kept else None
        # Keeps the count a multiple of the stride, so that the next point is kept again.
        self.num_points = len(kept) * self._stride
        if self.first_not_finite is not None and self.first_not_finite >= step:
            self.first_not_finite = None
        if self.not_finite_from is not None and self.not_finite_from >= step:
            self.not_finite_from = None

    @property
    def points(self) -> Points:
        kept = list(zip(self._steps, self._values, strict=True))
        if self._last is None or self._last == kept[-1]:
            return kept
        return [*kept, self._last]

    @property
    def stride(self) -> int:
        """Of so many points one is kept."""
        return self._stride

    @property
    def first(self) -> tuple[int, float] | None:
        return (self._steps[0], self._values[0]) if self._steps else None

    @property
    def spacing(self) -> int | None:
        """Usual steps from one point to the next; None where there are not two."""
        gaps = [b - a for a, b in pairwise(self._steps) if b > a]
        return round(median(gaps) / self._stride) if gaps else None

    @property
    def last(self) -> tuple[int, float] | None:
        return self._last

    def __bool__(self) -> bool:
        return self._last is not None


@dataclass
class StepTimes:
    """How long steps took. Sums are exact, although of very many timings only some are kept."""

    how: str = ""
    """How the tool measured a step."""
    steps_per_timing: int = 1
    """1 when single steps were timed, more when a timing is the mean of so many."""
    is_sample: bool = False
    """The timings are of some single steps; the sums below are of all steps."""
    curve: Curve = field(default_factory=Curve)
    slowest: tuple[int, float] | None = None
    num_steps: int = 0
    total_seconds: float = 0.0
    input_seconds: float | None = None
    """Of the total, the part spent waiting for the next batch."""

    def add(self, step: int, seconds: float) -> None:
        self.curve.add(step, seconds)
        if self.slowest is None or seconds > self.slowest[1]:
            self.slowest = (step, seconds)

    @property
    def mean_seconds(self) -> float | None:
        return self.total_seconds / self.num_steps if self.num_steps else None

    @property
    def input_share(self) -> float | None:
        if self.input_seconds is None or not self.total_seconds:
            return None
        return min(self.input_seconds / self.total_seconds, 1.0)


@dataclass(frozen=True)
class RankTimes:
    """What one of several processes printed about its steps."""

    name: str
    """How a reader of the log finds it: its rank, its file, or its place among the others."""
    num_steps: int
    total_seconds: float
    input_seconds: float | None

    @property
    def input_share(self) -> float | None:
        if self.input_seconds is None or not self.total_seconds:
            return None
        return min(self.input_seconds / self.total_seconds, 1.0)


@dataclass
class ForeignRun:
    path: Path
    tool: str
    began: str = ""
    """Date and time of the first stamp, by whatever clock the log was written."""
    begin_time: float | None = None
    end_time: float | None = None
    """Seconds since 1970, where the log has such a clock."""
    step: int = 0
    """The last step that the log shows."""
    first_step: int | None = None
    """Where the log begins in the middle of a run: the first step that its times stand for."""
    steps_wanted: int | None = None
    print_every_steps: int | None = None
    has_end: bool = False
    """The log says that the program ended by itself."""

    training_loss: Curve = field(default_factory=Curve)
    validation_loss: Curve = field(default_factory=Curve)
    training_scores: dict[str, Curve] = field(default_factory=dict)
    scores: dict[str, Curve] = field(default_factory=dict)
    """On validation data, by the name of the measure, the most important first."""
    rate: Curve = field(default_factory=Curve)

    step_times: StepTimes = field(default_factory=StepTimes)
    wall_seconds: float | None = None
    wall_how: str = ""
    is_wall_whole: bool = False
    """The tool says how long it took in all, also where the log begins in the middle."""
    start_up_seconds: float | None = None
    evaluation_seconds: float | None = None
    pause_seconds: float | None = None
    """Gaps between steps in which something else was done: evaluation, checkpoints."""
    cpu_seconds: float | None = None
    """Processor time of the main process alone."""

    failure: Failed | None = None
    """What ended it; None where nothing did, or where it was outlived."""

    ranks: list[RankTimes] = field(default_factory=list)
    """Of several processes that printed their own times."""
    world: int | None = None
    world_how: str = ""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    batch_per_process: int | None = None
    global_batch: int | None = None
    batch_how: str = ""
    steps_per_epoch: int | None = None
    num_parameters: int | None = None
    gradient_bytes_each: int = 4
    loader_workers: int | None = None
    """Of each process, that read ahead."""
    unit: str = ""
    """What is counted in `units_per_second`, in the singular."""
    units_per_second: float | None = None
    gradient_how: str = "4 bytes for each, as 32-bit gradients take"

    part: int = 0
    """Where a file holds what several programs printed: which of them, e.g. the notebook's cell."""
    counters: list[Counters] = field(default_factory=list)
    """What tools that watch the machines recorded meanwhile, by host."""
    config: dict[str, Any] = field(default_factory=dict)
    """Settings that the tool printed."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the log should know and no answer would say."""
