"""The training loop. Features are lines here, or they do not exist."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.record.schema import CHECKPOINT, COMPUTE, EVALUATE, INPUT
from paceline.schedule import batch_scale, rate_at
from paceline.train.agreement import Agreement
from paceline.train.guard import lost, watch_loss
from paceline.train.measure.recorder import ReadInterval
from paceline.train.precision import scoring_exactly, scoring_in
from paceline.train.step import plan_step

if TYPE_CHECKING:
    from paceline.train.attempt import Attempt


class Loop:
    """The steps of an attempt; what it needs, it takes from there."""

    def __init__(self, attempt: "Attempt") -> None:
        self.recipe, self.task, self.world = attempt.recipe, attempt.task, attempt.world
        self.run, self.state, self.stepper = attempt.run, attempt.state, attempt.stepper
        self.input, self.saver, self.recorder = attempt.input, attempt.saver, attempt.recorder
        self._last_save = time.monotonic()
        self._agreement = Agreement(self.world, self.recorder.clock)

    def train(self, stop_asked: Callable[[], bool]) -> str:
        """Step until done or told to stop; the reason why it ended."""
        progress, recorder, reason = self.state.progress, self.recorder, "finished"
        while progress.step < self.recipe.steps:
            plan = plan_step(self.task, progress.position, self.world)
            with recorder.clock.phase(INPUT):
                batches = self.input.take(plan)
            step = progress.step + 1
            rate = self._rate(step)
            result = self.stepper.step(plan, batches, rate, recorder.ends_interval(step))
            progress.step, progress.position = step, plan.indices.stop
            recorder.add_step(step, rate, result)
            if ready := self.stepper.readiness.take():
                sizes, shares = zip(*ready, strict=True)
                recorder.note("gradients", step=step, ready_bytes=sizes, ready_shares=shares)
            stop, save_now = self._agreement.after_step(stop_asked(), self._save_is_late())
            ends = stop or step == self.recipe.steps
            evaluate = self._evaluation_is_due(step)
            save = ends or save_now or self._save_is_due(step)
            must_write = evaluate or save
            is_written = False
            if must_write or recorder.ends_interval(step):
                is_written = self._write_steps(must_write)
            self.input.after_step(step, plan, is_settled=is_written)
            if evaluate:
                self._evaluate(step)
            if save:
                self._save()
            if stop:
                reason = "stopped"
                break
        return reason

    def _rate(self, step: int) -> float:
        whole = self.task.global_batch(self.world.size)
        schedule = self.recipe.schedule
        return rate_at(schedule, step, self.recipe.steps) * batch_scale(schedule, whole)

    def _save_is_late(self) -> bool:
        """By the first process's clock."""
        minutes = self.recipe.checkpoint.every_minutes
        is_late = minutes is not None and time.monotonic() - self._last_save >= 60 * minutes
        return is_late and self.world.is_first

    def _evaluation_is_due(self, step: int) -> bool:
        every = self.recipe.evaluate.every_steps
        return every is not None and (step % every == 0 or step == self.recipe.steps)

    def _save_is_due(self, step: int) -> bool:
        every = self.recipe.checkpoint.every_steps
        return every is not None and step % every == 0

    def _write_steps(self, all_of_them: bool) -> bool:
        """Record the steps since the last time, unless they show that the run is lost. On a device
        those before, unless it must be all: before scores, and into a checkpoint."""
        epochs = self.task.epochs_at(self.state.progress.position)
        self.recorder.close_interval(epochs, self.stepper.take_measures())
        is_written = False
        while (interval := self._read_interval(all_of_them)) is not None:
            self._watch_losses(interval)
            self.recorder.write_steps(self.recipe.steps, interval)
            self.stepper.marks.keep_pace(interval.device_steps)
            is_written = True
        return is_written

    def _read_interval(self, wait: bool) -> ReadInterval | None:
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

    def _evaluate(self, step: int) -> None:
        progress = self.state.progress
        with self.recorder.clock.phase(EVALUATE):
            network, world = self.state.scored_network, self.world
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

    def _save(self) -> None:
        self._last_save = time.monotonic()
        if self.saver is not None:
            with self.recorder.clock.phase(CHECKPOINT):
                self.saver.save(self.state)
            self.recorder.saved_aside()
            self.stepper.marks.restart()
