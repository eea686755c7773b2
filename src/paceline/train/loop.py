"""The training loop. Features are lines here, or they do not exist."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.record.schema import INPUT
from paceline.train.agreement import Agreement
from paceline.train.duties import Duties
from paceline.train.guard import FirstGlimpse
from paceline.train.step import plan_step

if TYPE_CHECKING:
    from paceline.train.attempt import Attempt


class Loop:
    """The steps of an attempt; what it needs, it takes from there."""

    def __init__(self, attempt: "Attempt") -> None:
        self.recipe, self.task, self.world = attempt.recipe, attempt.task, attempt.world
        self.state, self.stepper = attempt.state, attempt.stepper
        self.input, self.recorder = attempt.input, attempt.recorder
        self.duties = Duties(attempt, attempt.world.size)
        self._compare_with_one_host = attempt.warn_if_one_host_is_faster
        waits = not self.state.exchange.runs_ahead
        self._agreement = Agreement(self.world, self.recorder.clock, waits)

    def train(self, stop_asked: Callable[[], bool]) -> str:
        """Step until done or told to stop; the reason why it ended."""
        progress, recorder, duties = self.state.progress, self.recorder, self.duties
        reason = "finished"
        glimpse = FirstGlimpse(self.input.phases, self._num_timed, self._compare_with_one_host)
        while progress.step < self.recipe.steps:
            plan = plan_step(self.task, progress.position, self.world)
            with recorder.clock.phase(INPUT):
                batches = self.input.take(plan)
            step = progress.step + 1
            rate = duties.rate(step)
            # Where updates come late, the norm that is told is that of the step before.
            of_step = step + 1 if self.state.exchange.updates_late else step
            result = self.stepper.step(plan, batches, rate, recorder.ends_interval(of_step))
            progress.step, progress.position = step, plan.indices.stop
            recorder.add_step(step, rate, result)
            if ready := self.stepper.readiness.take():
                sizes, shares = zip(*ready, strict=True)
                recorder.note("gradients", step=step, ready_bytes=sizes, ready_shares=shares)
            stop, save_now = self._agreement.after_step(stop_asked(), duties.save_is_late())
            ends = stop or step == self.recipe.steps
            evaluate = duties.evaluation_is_due(step)
            last_save = ends and self.recipe.checkpoint.at_end
            save = last_save or save_now or duties.save_is_due(step)
            must_write = evaluate or save or ends
            is_written = False
            if must_write or recorder.ends_interval(step):
                is_written = self._write_steps(must_write)
            self.input.after_step(step, plan, is_settled=is_written)
            glimpse.after_step()
            if must_write:
                self.stepper.finish()
            if evaluate:
                duties.evaluate(step, self.state.scored_network, progress)
            if save:
                duties.save()
            if stop:
                reason = "stopped"
                break
        self._agreement.close()
        return reason

    def _num_timed(self) -> int:
        """Steps that `input.phases` has: of a device, those whose stamps were read."""
        on_device = self.world.device.type != "cpu"
        return self.recorder.settled.num_steps if on_device else self.state.progress.step

    def _write_steps(self, all_of_them: bool) -> bool:
        epochs = self.task.epochs_at(self.state.progress.position)
        return self.duties.write_steps(epochs, self.stepper.take_measures(), all_of_them)
