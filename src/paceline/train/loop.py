"""The training loop. Features are lines here, or they do not exist."""

import time
from collections.abc import Callable
from typing import Any

from paceline.errors import UserError
from paceline.recipe import Recipe
from paceline.record.schema import CHECKPOINT, EVALUATE, INPUT, NETWORK, RunDirectory
from paceline.schedule import batch_scale, rate_at
from paceline.tasks.contract import Workload
from paceline.train.finetune import begin
from paceline.train.guard import lost, watch_loss
from paceline.train.input import Input
from paceline.train.measure import practice
from paceline.train.measure.flops import measure_peak
from paceline.train.measure.probes import ProbeThread, find_place, start_probes
from paceline.train.measure.recorder import Recorder
from paceline.train.save import CheckpointSaver, restore
from paceline.train.state import TrainState, build_state
from paceline.train.step import Stepper, plan_step
from paceline.world import World


class Trainer:
    """A run on its way: built once per attempt, then `train`."""

    def __init__(self, recipe: Recipe, run: RunDirectory, workload: Workload, world: World) -> None:
        self.recipe, self.run, self.workload, self.world = recipe, run, workload, world
        refuse_too_many_processes(workload, world)
        refuse_fp16_without_cuda(recipe, world)
        self.recorder = Recorder(run, recipe.log, world, workload.unit)
        self.state = build_state(recipe, workload.build_model(), world)
        self.saver = (
            CheckpointSaver(run, recipe.checkpoint, self.recorder.note) if world.saves else None
        )
        self.stepper = Stepper(recipe, workload, self.state, world, self.recorder.clock)
        self.input = Input(workload, world, self.recorder.clock, self.recorder.note)
        self.probes: ProbeThread | None = None
        self._last_save = time.monotonic()

    def restore(self) -> None:
        progress = self.state.progress
        for problem in restore(self.state, self.run, self.world):
            self.recorder.note("warning", step=progress.step, text=f"damaged checkpoint: {problem}")
        progress = self.state.progress
        fingerprint = self.workload.data_fingerprint
        if progress.data_fingerprint not in ("", fingerprint):
            raise UserError(
                f"{self.run.path} was trained on other data "
                f"({progress.data_fingerprint[:12]}, not {fingerprint[:12]})",
                "name the old data with data=DIR, or another --run to begin anew",
            )
        progress.data_fingerprint = fingerprint
        if progress.step == 0 and (text := begin(self.recipe, self.state.network, self.world)):
            self.recorder.note("start", step=0, text=text)

    def train(self, stop_asked: Callable[[], bool]) -> str:
        """Step until done or told to stop; the reason why it ended."""
        progress, recorder, reason = self.state.progress, self.recorder, "finished"
        while progress.step < self.recipe.steps:
            plan = plan_step(self.workload, progress.position, self.world)
            with recorder.clock.phase(INPUT):
                batches = self.input.take(plan)
            step = progress.step + 1
            rate = self._rate(step)
            result = self.stepper.step(plan, batches, rate, recorder.ends_interval(step))
            progress.step, progress.position = step, plan.indices.stop
            recorder.add_step(step, rate, result)
            self.input.after_step(step, plan)
            stop, save_now = self._agree(stop_asked())
            ends = stop or step == self.recipe.steps
            evaluate = self._evaluation_is_due(step)
            save = ends or save_now or self._save_is_due(step)
            if evaluate or save or recorder.ends_interval(step):
                self._write_steps()
            if evaluate:
                self._evaluate(step)
            if save:
                self._save()
            if stop:
                reason = "stopped"
                break
        return reason

    def _rate(self, step: int) -> float:
        whole = self.workload.global_batch(self.world.size)
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
        for step, rate, loss in self.recorder.read_losses():
            problem = watch_loss(progress, loss, factor)
            if problem:
                self.recorder.note("warning", step=step, text=problem)
                raise lost(problem, step, rate, self._last_good())
        epochs = self.workload.epochs_at(progress.position)
        self.recorder.write_steps(self.recipe.steps, epochs, self.stepper.take_measures())

    def _last_good(self) -> str | None:
        if self.saver is not None:
            self.saver.wait()
        steps = sorted(self.run.checkpoints.glob("step-*"))
        return str(steps[-1]) if steps else None

    def _evaluate(self, step: int) -> None:
        progress = self.state.progress
        with self.recorder.clock.phase(EVALUATE):
            network, world = self.state.scored_network, self.world
            scores = self.workload.evaluate(network, "validation", world)
            self.recorder.score(step, "validation", scores)
            if self.recipe.evaluate.train_samples != 0:
                seen = self.workload.evaluate_training(network, world)
                self.recorder.score(step, "train", seen)
        score = scores.values[self.workload.best_by]
        if progress.best_score is None or score > progress.best_score:
            progress.best_score, progress.best_step = score, step

    def _save(self) -> None:
        self._last_save = time.monotonic()
        if self.saver is not None:
            with self.recorder.clock.phase(CHECKPOINT):
                self.saver.save(self.state)
            self.recorder.saved_aside()

    def rehearse(self) -> None:
        plan = plan_step(self.workload, self.state.progress.position, self.world)
        self.stepper.rehearse(plan, [self.workload.micro_batch(index) for index in plan.mine])

    def look_around(self) -> dict[str, Any]:
        """Where this process runs and what it could do; from here on the host is probed."""
        self.recorder.open_board(self.state.progress.step)
        place = find_place(self.world)
        facts = {
            **place.facts(),
            "flops_per_unit": self._count_flops(),
            "peak_flops": measure_peak(self.world.device, self.recipe.precision),
        }
        if self.world.is_first and practice.asked():
            text = f"slowed down on purpose: {practice.VARIABLE}={practice.asked()}"
            self.recorder.note("warning", step=self.state.progress.step, text=text)
        self.stepper.take_measures()  # what start-up gave to the network is no step's
        self.probes = start_probes(
            self.run,
            place,
            self.recipe.log.probe_seconds,
            lambda: self.state.progress.step,
            self.recorder.note,
        )
        self.input.start(self.state.progress, self.recipe.steps)
        return {**facts, "loader_workers": self.input.num_workers}

    def _count_flops(self) -> float | None:
        """By the first process for all."""
        flops = None
        if self.world.is_first:
            plan = plan_step(self.workload, self.state.progress.position, self.world)
            batch = self.workload.micro_batch(plan.mine[0])
            flops = self.stepper.flops_per_unit(plan, batch)
        sent: float | None = self.world.send_value(flops)
        return sent

    def finish(self, reason: str) -> None:
        """Wait for the last save and close the records; a lost last save is the user's to know."""
        self.input.close()
        if self.saver is not None:
            with self.recorder.clock.phase(CHECKPOINT):
                self.saver.close()
        if self.probes is not None:
            self.probes.stop()
        self.recorder.end(self.state.progress.step, reason)
        if self.saver is not None and self.saver.problem and reason in ("finished", "stopped"):
            raise UserError(self.saver.problem, "free some space, then go on with the same command")


def refuse_too_many_processes(workload: Workload, world: World) -> None:
    num_micro = workload.micro_batches_per_step(world.size)
    if num_micro < world.size:
        raise UserError(
            f"a step has {num_micro} micro-batches, too few for {world.size} processes",
            "lower batch.micro, raise batch.global, or start fewer processes",
        )


def refuse_fp16_without_cuda(recipe: Recipe, world: World) -> None:
    if recipe.precision == "fp16" and world.device.type != "cuda":
        raise UserError(
            f"precision=fp16 needs CUDA, and this run is on {world.device.type}",
            "use precision=fp32 (or bf16, which most CPUs emulate slowly)",
        )


def describe_state(state: TrainState, workload: Workload, world: World) -> dict[str, Any]:
    """Facts about an attempt that a report wants and only training knows."""
    parameters = [p for p in state.network.parameters() if p.requires_grad]
    return {
        "world_size": world.size,
        "device": str(world.device),
        "unit": workload.unit,
        "best_by": workload.best_by,
        "num_parameters": sum(p.numel() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "micro_batches_per_step": workload.micro_batches_per_step(world.size),
    }
