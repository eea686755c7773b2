"""The training loop. Features are lines here, or they do not exist."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.record.schema import CHECKPOINT, COMPUTE, EVALUATE, INPUT, NETWORK
from paceline.schedule import batch_scale, rate_at
from paceline.train.guard import lost, watch_loss
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
            stop, save_now = self._agree(stop_asked())
            ends = stop or step == self.recipe.steps
            evaluate = self._evaluation_is_due(step)
            save = ends or save_now or self._save_is_due(step)
            write = evaluate or save or recorder.ends_interval(step)
            if write:
                self._write_steps()
            self.input.after_step(step, plan, is_settled=write)
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

    def _agree(self, stop_asked: bool) -> tuple[bool, bool]:
        """All processes stop, and save by the clock, after the same step."""
        minutes = self.recipe.checkpoint.every_minutes
        due = minutes is not None and time.monotonic() - self._last_save >= 60 * minutes
        with self.recorder.clock.phase(NETWORK):
            stop, save = self.world.any_of([stop_asked, due and self.world.is_first])
        return stop, save

    def _evaluation_is_due(self, step: int) -> bool:
        every = self.recipe.evaluate.every_steps
        return every is not None and (step % every == 0 or step == self.recipe.steps)

    def _save_is_due(self, step: int) -> bool:
        every = self.recipe.checkpoint.every_steps
        return every is not None and step % every == 0

    def _write_steps(self) -> None:
        """Record the steps since the last time, unless they show that the run is lost."""
        progress, factor = self.state.progress, self.recipe.guard.diverged_factor
        with self.recorder.clock.more_of(COMPUTE):  # on CUDA the host waits here for the device
            losses, measures = self.recorder.read_losses(), self.stepper.take_measures()
        for step, rate, loss in losses:
            problem = watch_loss(progress, loss, factor)
            if problem:
                self.recorder.note("warning", step=step, text=problem)
                raise lost(problem, step, rate, self._last_good())
        epochs = self.task.epochs_at(progress.position)
        self.recorder.write_steps(self.recipe.steps, epochs, measures)

    def _last_good(self) -> str | None:
        if self.saver is not None:
            self.saver.wait()
        steps = sorted(self.run.checkpoints.glob("step-*"))
        return str(steps[-1]) if steps else None

    def _evaluate(self, step: int) -> None:
        progress = self.state.progress
        with self.recorder.clock.phase(EVALUATE):
            network, world = self.state.scored_network, self.world
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
