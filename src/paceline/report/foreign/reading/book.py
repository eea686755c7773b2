"""From lines of progress to the facts of a run: where steps are counted and times are added up.

A reader tells the book what each line says and nothing more. The book knows that steps which go
back are another run, that a line printed twice is another process, that means cover the steps since
the line before, and that a gap between two lines in which something was evaluated is no step.
"""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from paceline.report.foreign.failures import Failures
from paceline.report.foreign.reading.stamps import in_words
from paceline.report.foreign.reading.timing import Pace, Progress
from paceline.report.foreign.run import Curve, ForeignRun

_NONE: Mapping[str, float] = MappingProxyType({})
_RECENT = 8
"""Lines: a step that was seen in so few is the same step of another process."""
_FAR_APART = 3
_SURE = 0.8
SAMPLE = "sample"
MEAN = "mean"
__all__ = ["MEAN", "SAMPLE", "Book", "Progress"]


class Book:
    def __init__(self, path: Path, tool: str, how: str, timing: str = MEAN) -> None:
        self._path, self._tool, self._how, self._timing = path, tool, how, timing
        self._runs: list[ForeignRun] = []
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._failures = Failures()
        self.begin_run()

    def begin_run(self) -> None:
        """Another start into the same log."""
        if self._runs:
            self._close()
        self.run = ForeignRun(self._path, self._tool)
        self.run.step_times.how = self._how
        self.pace = Pace(is_sample=self._timing == SAMPLE)
        self._recent.clear()
        self._first_step = 0
        self._copies_now, self._copies = 1, dict[int, int]()
        """How many lines each step had, and how many steps had so many."""
        self._runs.append(self.run)

    def progress(self, told: Progress) -> None:
        if self._recent and told.step <= self._recent[-1]:
            if told.step in self._recent and not self._is_first_again(told.step):
                self._again(told)
                return
            self._begin_again()
        if not self._recent:
            self._first_step = told.step
        self._count_copies()
        self._recent.append(told.step)
        run = self.run
        self._failures.went_on(run)
        if told.loss is not None:
            run.training_loss.add(told.step, told.loss)
        if told.rate is not None:
            run.rate.add(told.step, told.rate)
        for name, value in told.scores.items():
            run.training_scores.setdefault(name, Curve()).add(told.step, value)
        run.step = max(run.step, told.step)
        self.pace.add(told)

    def _is_first_again(self, step: int) -> bool:
        """A short run that was started once more; processes of one run are never so far apart."""
        lines_ago = len(self._recent) - 1 - self._recent.index(step)
        return step == self._first_step and lines_ago >= _FAR_APART

    def _again(self, told: Progress) -> None:
        """The same step with another loss was printed by another process; the same line again
        was only printed twice."""
        last = self.run.training_loss.last
        if told.step == self._recent[-1] and last and told.loss not in (None, last[1]):
            self._copies_now += 1

    def _count_copies(self) -> None:
        self._copies[self._copies_now] = self._copies.get(self._copies_now, 0) + 1
        self._copies_now = 1

    @property
    def _num_processes(self) -> int:
        """So many as printed nearly every step."""
        most = max(self._copies, key=lambda count: self._copies[count], default=1)
        is_sure = self._copies.get(most, 0) >= _SURE * max(sum(self._copies.values()), 4)
        return most if is_sure else 1

    def _begin_again(self) -> None:
        before = self.run
        self.begin_run()
        self.run.config = dict(before.config)
        for name in ("world", "world_how", "num_parameters", "steps_wanted", "steps_per_epoch"):
            setattr(self.run, name, getattr(before, name))

    def evaluated(
        self,
        loss: float | None = None,
        scores: Mapping[str, float] = _NONE,
        step: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """On validation data, after the step, or else after the last one that was printed."""
        run = self.run
        at = run.step if step is None else step
        if step is None and not self._recent:
            return  # an evaluation that belongs to no step is no point of a curve
        self._failures.went_on(run)
        if loss is not None:
            _add_once(run.validation_loss, at, loss)
        for name, value in scores.items():
            _add_once(run.scores.setdefault(name, Curve()), at, value)
        if seconds is not None:
            run.evaluation_seconds = (run.evaluation_seconds or 0.0) + seconds
        run.step = max(run.step, at)
        self.pace.interrupted()

    def at(self, stamp: float | None) -> None:
        """A line with a time stamp that says nothing of steps, but that time went on."""
        if stamp is not None and self._recent:
            self.pace.until(stamp)

    def look_for_failure(self, line: str) -> None:
        self._failures.look_at(line)

    def _close(self) -> None:
        run = self.run
        self._failures.ended(run)
        self.pace.fill(run)
        if self.pace.began is not None:
            run.began = run.began or in_words(self.pace.began)
        if run.steps_wanted and run.step >= run.steps_wanted:
            run.has_end = True
        if run.has_end and run.failure is not None:
            run.notes.append(f"when it was over: {run.failure.line}")
            run.failure = None
        self._count_copies()
        if self._num_processes > 1 and not run.world:
            run.world = self._num_processes
            run.world_how = "the processes that printed every line"

    def finish(self) -> list[ForeignRun]:
        self._close()
        return [run for run in self._runs if run.step or run.training_loss or run.scores]


def _add_once(curve: Curve, step: int, value: float) -> None:
    """Every process prints the same value after an evaluation."""
    if curve.last is None or curve.last[0] != step:
        curve.add(step, value)
