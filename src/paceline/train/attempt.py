"""An attempt: one start of a run's processes, from building to the last line. Its life on one page.

The order is part of the promise. Weights are restored before the rehearsal, because the rehearsal
lays out DDP's buckets for them; what was measured until `begin` belongs to start-up and is thrown
away; input threads start last, because they read from the restored position on.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from paceline.config import dump
from paceline.errors import UserError
from paceline.lifetime import process_started
from paceline.order import WorkerOrder
from paceline.project import is_own
from paceline.recipe import refuse_too_many_processes
from paceline.record.schema import CHECKPOINT, RunDirectory
from paceline.settings import Recipe
from paceline.task_finder import find_task
from paceline.tasks.contract import Task
from paceline.tasks.network import build_network
from paceline.tasks.trials import try_out
from paceline.train import finetune
from paceline.train.input import Coming, Input, coming_steps
from paceline.train.loop import Loop
from paceline.train.measure import environment, kernels, practice
from paceline.train.measure.device_clock import steps_ahead
from paceline.train.measure.flops import measure_peak
from paceline.train.measure.probes import Place, ProbeThread, find_place, start_probes
from paceline.train.measure.recorder import Recorder
from paceline.train.measure.user_code import find_changes, refuse_different_hosts
from paceline.train.precision import agree_on_arithmetic, number_type
from paceline.train.reduce.choice import slower_than_one_host
from paceline.train.save import build_saver, restore
from paceline.train.state import build_state
from paceline.train.step import Stepper, plan_step
from paceline.train.trial import Trial, settle_exchange
from paceline.world import World


class Attempt:
    """Everything that one process of a run has, built once; then `live`."""

    def __init__(self, recipe: Recipe, run: RunDirectory, task: Task, world: World) -> None:
        refuse_too_many_processes(recipe, world.size)
        self.recipe, self.run, self.task, self.world = recipe, run, task, world
        self.arithmetic = agree_on_arithmetic(recipe, world)
        scales = find_task(recipe.workload).score_scales
        self.recorder = Recorder(run, recipe.log, world, task.unit, scales)
        network = build_network(task)
        self.kernels = kernels.agree(network, world)
        trial = Trial(recipe, task, network, world, self.arithmetic)
        self.is_left_to_us = recipe.reduce.kind == "auto"
        self.recipe = recipe = settle_exchange(trial, run, self.recorder.note)
        self.state = build_state(recipe, network, world, self.arithmetic)
        self.saver = build_saver(run, recipe.checkpoint, self.recorder.note, self.state)
        self.stepper = Stepper(
            recipe, self.arithmetic, task, self.state, world, self.recorder.clock
        )
        on_device = world.device.type != "cpu"
        phases = self.recorder.settled if on_device else self.recorder.clock
        self.input = Input(task, world, phases, self.recorder.note)
        self.probes: ProbeThread | None = None
        self.num_hosts = 1
        self._has_warned_of_hosts = False
        self.num_trainers = self.num_sharing = world.size
        """Processes that compute gradients, and how many of them share the batch of a step."""

    def live(self, order: WorkerOrder, stop_asked: Callable[[], bool]) -> str:
        """From the newest checkpoint to the end; the reason why it ended."""
        self.restore()
        self.rehearse()
        facts = self.look_around(order)
        self.begin(order.launched_at or process_started(), facts)
        reason = "failed"
        try:
            reason = Loop(self).train(stop_asked)
        finally:
            self.finish(reason)
        return reason

    def restore(self) -> None:
        """The newest whole checkpoint; in a new run, the weights that fine-tuning begins with."""
        for problem in restore(self.state, self.run, self.world):
            self.warn(problem)
        self.refuse_other_data()
        if self.state.progress.step == 0:
            self.begin_anew()
            self.state.exchange.begin()

    def refuse_other_data(self) -> None:
        progress, fingerprint = self.state.progress, self.task.data_fingerprint
        if progress.data_fingerprint not in ("", fingerprint):
            raise UserError(
                f"{self.run.path} was trained on other data "
                f"({progress.data_fingerprint[:12]}, not {fingerprint[:12]})",
                "name the old data with data=DIR, or another --run to begin anew",
            )
        progress.data_fingerprint = fingerprint
        if self.is_left_to_us:
            progress.exchange = dump(self.recipe.reduce)

    def begin_anew(self) -> None:
        """With the weights that fine-tuning begins with, if the recipe names some."""
        text = finetune.begin(self.task, self.state.network, self.world)
        if text:
            self.recorder.note("start", step=0, text=text)

    def rehearse(self, num_mine: int | None = None) -> None:
        """One backward whose gradients are thrown away, so that a first step rounds like all.
        `num_mine`: micro-batches of this process, where its share of a step does not say it."""
        position = self.state.progress.position
        plan = plan_step(self.task, position, self.world)
        if num_mine is not None:
            plan = replace(plan, mine=range(position, position + num_mine))
        if is_own(self.recipe.workload):
            try_out(self.task, self.state.network, plan.mine[0])
        if self.recipe.deterministic and self.world.device.type != "cpu":
            self.be_exact(self.task.micro_batch(plan.mine[0]))
        self.stepper.rehearse(plan, [self.task.micro_batch(index) for index in plan.mine])

    def be_exact(self, batch: Any) -> None:
        """Refuse what does not repeat itself, unless the network cannot do without it."""
        problems = self.world.gather_values(self.stepper.why_not_exact(batch))
        lacking = next((problem for problem in problems if problem), None)
        torch.use_deterministic_algorithms(True, warn_only=lacking is not None)
        if lacking and self.world.is_first:
            self.warn(
                f"deterministic=true cannot make all of this network exact: {lacking}. The rest is"
            )

    def look_around(self, order: WorkerOrder, known: Place | None = None) -> dict[str, Any]:
        """Where this process runs, what it has and what it could do. `known`: where that has been
        found out already."""
        ran = {"kernels": self.kernels.ran()}
        refuse_different_hosts(self.task, self.world)
        if self.world.is_first:
            changes = find_changes(self.run, self.recipe.workload)
            if changes:
                self.warn(changes)
            about = environment.describe(self.recipe, self.world)
            about["world_size"] = self.num_trainers
            facts_of_all = {**about, **ran, **self.arithmetic.facts()}
            environment.write(self.run, facts_of_all, order.hosts)
            self.task.keep(self.run.path)
            for problem in (
                self.kernels.warning,
                environment.unused_devices(self.recipe, self.world),
            ):
                if problem:
                    self.warn(problem)
            if practice.asked():
                self.warn(f"slowed down on purpose: {practice.VARIABLE}={practice.asked()}")
        self.recorder.open_board(self.state.progress.step)
        place = known or find_place(self.world)
        facts = {
            **self.describe_state(),
            **self.arithmetic.facts(),
            **place.facts(),
            **ran,
            **self._describe_data(),
            "flops_per_unit": self._count_flops(),
            "peak_flops": measure_peak(self.world.device, number_type(self.arithmetic)),
        }
        self.stepper.take_measures()  # what start-up gave to the network is no step's
        self.probes = start_probes(
            self.run,
            self.world.attempt,
            place,
            self.recipe.log.probe_seconds,
            lambda: self.state.progress.step,
            self.recorder.note,
        )
        return facts

    def begin(
        self, launched_at: float, facts: dict[str, Any], coming: Coming | None = None
    ) -> None:
        """Start-up ends here: from now on every second belongs to a phase of the loop."""
        progress = self.state.progress
        steps = coming or coming_steps(self.task, progress, self.recipe.steps, self.world)
        self.input.start(steps)
        self.stepper.marks.most_ahead = steps_ahead(self.input.step_bytes)
        facts = {**facts, "loader_workers": self.input.num_workers}
        self.num_hosts = int(facts.get("num_hosts") or 1)
        first = self.stepper.rehearsal
        if self.world.device.type == "cpu":  # elsewhere the host's clock says nothing
            computed = first.seconds - first.waited_seconds
            self.warn_if_one_host_is_faster(computed, first.waited_seconds)
        self.recorder.begin(progress.step, progress.position, launched_at, facts)
        self.stepper.marks.restart()

    def warn_if_one_host_is_faster(self, busy_seconds: float, waited_seconds: float) -> None:
        """Of a step; said once, and by the first process only."""
        kind = self.recipe.reduce.kind
        text = slower_than_one_host(self.num_hosts, busy_seconds, waited_seconds, kind)
        if text and self.world.is_first and not self._has_warned_of_hosts:
            self.warn(text)
            self._has_warned_of_hosts = True

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

    def warn(self, text: str) -> None:
        self.recorder.note("warning", step=self.state.progress.step, text=text)

    def describe_state(self) -> dict[str, Any]:
        """Facts that a report wants and only training knows."""
        return {
            "world_size": self.num_trainers,
            "device": str(self.world.device),
            "unit": self.task.unit,
            "best_by": self.task.best_by,
            "num_parameters": sum(p.numel() for p in self._trained()),
            "gradient_bytes": self._gradient_bytes(),
            "steps_wanted": self.recipe.steps,
            "micro_batches_per_step": self.task.micro_batches_per_step(self.num_sharing),
            **self._describe_exchange(),
        }

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self.state.network.parameters() if p.requires_grad]

    def _gradient_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self._trained())

    def most_bytes_of_step(self) -> float:
        """That a host may send and receive: a ring takes less than four times the gradients,
        servers as many times more as there are processes."""
        return 4.0 * self.num_trainers * self._gradient_bytes()

    def _describe_exchange(self) -> dict[str, Any]:
        settings = self.recipe.reduce
        if self.world.size == 1:
            return {}
        every = {"exchanged_every": settings.every} if settings.every else {}
        return {"reduce": settings.kind, **every}

    def _describe_data(self) -> dict[str, Any]:
        facts = self.task.data_facts()
        for fact in facts.values():
            if self.world.is_first and "text" in fact:
                self.recorder.note("note", step=self.state.progress.step, text=fact["text"])
        return facts

    def _count_flops(self) -> float | None:
        """By the first process for all."""
        flops = None
        if self.world.is_first:
            plan = plan_step(self.task, self.state.progress.position, self.world)
            flops = self.stepper.flops_per_unit(plan, self.task.micro_batch(plan.mine[0]))
        sent: float | None = self.world.send_value(flops)
        return sent
