"""What is done between steps (records, evaluations, checkpoints), and when each is due.

The loop asks for it, and so does the chief of a run with parameter servers.
"""

import time
from typing import TYPE_CHECKING

from torch import nn

from paceline.record.schema import CHECKPOINT, COMPUTE, EVALUATE
from paceline.schedule import batch_scale, rate_at
from paceline.train.guard import lost, watch_loss
from paceline.train.measure.recorder import ReadInterval
from paceline.train.precision import scoring_exactly, scoring_in
from paceline.train.state import Progress
from paceline.train.step import Measures

if TYPE_CHECKING:
    from paceline.train.attempt import Attempt


class Duties:
    def __init__(self, attempt: "Attempt", num_sharing: int, by_threads: bool = False) -> None:
        """`num_sharing`: how many processes share the batch of a step. `by_threads`: others than
        the one whose phases are timed write down what they got from elsewhere."""
        self.recipe, self.task, self.world = attempt.recipe, attempt.task, attempt.world
        self.run, self.state, self.stepper = attempt.run, attempt.state, attempt.stepper
        self.saver, self.recorder = attempt.saver, attempt.recorder
        self._num_sharing, self._by_threads = num_sharing, by_threads
        self._last_save = time.monotonic()

    def rate(self, step: int) -> float:
        whole = self.task.global_batch(self._num_sharing)
        schedule = self.recipe.schedule
        return rate_at(schedule, step, self.recipe.steps) * batch_scale(schedule, whole)

    def save_is_late(self) -> bool:
        """By the first process's clock."""
        minutes = self.recipe.checkpoint.every_minutes
        is_late = minutes is not None and time.monotonic() - self._last_save >= 60 * minutes
        return is_late and self.world.is_first

    def evaluation_is_due(self, step: int) -> bool:
        every = self.recipe.evaluate.every_steps
        return every is not None and (step % every == 0 or step == self.recipe.steps)

    def save_is_due(self, step: int) -> bool:
        every = self.recipe.checkpoint.every_steps
        return every is not None and step % every == 0

    def write_steps(self, epochs: float, measures: Measures, all_of_them: bool) -> bool:
        """Record the steps since the last time, unless they show that the run is lost. On a device
        those before, unless it must be all: before scores, and into a checkpoint."""
        self.recorder.close_interval(epochs, measures)
        is_written = False
        while (interval := self._read_interval(all_of_them)) is not None:
            self._watch_losses(interval)
            self.recorder.write_steps(self.recipe.steps, interval)
            self.stepper.marks.keep_pace(interval.device_steps)
            is_written = True
        return is_written

    def _read_interval(self, wait: bool) -> ReadInterval | None:
        if self._by_threads:
            return self.recorder.read_interval(wait=True)
        with self.recorder.clock.more_of(COMPUTE):  # on CUDA the host waits here for the device
            return self.recorder.read_interval(wait)

    def _watch_losses(self, interval: ReadInterval) -> None:
        factor = self.recipe.guard.diverged_factor
        for step, rate, loss in interval.steps():
            problem = watch_loss(self.state.progress, loss, factor)
            if problem:
                self.recorder.note("warning", step=step, text=problem)
                precision = self.stepper.arithmetic.precision
                raise lost(problem, step, rate, precision, self._last_good())

    def _last_good(self) -> str | None:
        if self.saver is not None:
            self.saver.wait()
        steps = sorted(self.run.checkpoints.glob("step-*"))
        return str(steps[-1]) if steps else None

    def evaluate(self, step: int, network: nn.Module, progress: Progress) -> None:
        with self.recorder.clock.phase(EVALUATE):
            world = self.world
            with scoring_in(self.stepper.arithmetic, world.device), scoring_exactly():
                scores = self.task.score(network, "validation", world)
                self.recorder.score(step, "validation", scores)
                if self.recipe.evaluate.train_samples != 0:
                    seen = self.task.score_training(network, world)
                    self.recorder.score(step, "train", seen)
        self.stepper.marks.restart()
        score = scores.values[self.task.best_by]
        if progress.best_score is None or score > progress.best_score:
            progress.best_score, progress.best_step = score, step

    def save(self) -> None:
        self.begin_save()
        if self.saver is not None:
            with self.recorder.clock.phase(CHECKPOINT):
                self.saver.save(self.state)
            self.recorder.saved_aside()
            self.stepper.marks.restart()

    def begin_save(self) -> None:
        """The time until the next one counts from here."""
        self._last_save = time.monotonic()
