"""One optimizer step: forward and backward of this process's micro-batches, reduction, update.

Losses are sums. Each micro-batch's gradient is divided by the units of the *whole* step over the
world, so ragged batches, accumulation and any number of processes give one and the same gradient.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from paceline.data.order import torch_seed
from paceline.machine.arithmetic import Arithmetic
from paceline.models.norm import StepStatistics
from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE, NETWORK, OPTIMIZER
from paceline.settings import Recipe
from paceline.tasks.contract import Task
from paceline.train.measure.device_clock import MarkedSteps
from paceline.train.measure.flops import count_flops
from paceline.train.measure.readiness import Readiness, can_watch
from paceline.train.optimizer import set_rate
from paceline.train.precision import exactly, multiplying_in
from paceline.train.reduce.exchange import Updating
from paceline.train.state import TrainState
from paceline.world import World


@dataclass(frozen=True)
class StepPlan:
    """Which micro-batches of the stream make this step, and which of them are this process's."""

    indices: range
    mine: range
    num_units: int
    """Of the whole step, by which losses are divided."""


@dataclass(frozen=True)
class StepResult:
    """Tensors, because reading them would make a CUDA device wait."""

    loss: torch.Tensor
    gradient_norm: torch.Tensor | None
    num_units: int


@dataclass(frozen=True)
class Measures:
    """What the steps since the last log line gave to the network, and their times on a device:
    not read yet, because the device may not have got there."""

    reduced_bytes: int = 0
    loss_scale: torch.Tensor | None = None
    """Of fp16: what losses are multiplied by now. It halves whenever gradients overflow."""
    steps: MarkedSteps = field(default_factory=MarkedSteps)
    """One for each of them; none on a CPU, where the host's clock is right."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the line."""


def plan_step(task: Task, position: int, world: World) -> StepPlan:
    count = task.micro_batches_per_step(world.size)
    indices = range(position, position + count)
    first, last = world.rank * count // world.size, (world.rank + 1) * count // world.size
    return StepPlan(indices, indices[first:last], sum(map(task.num_units, indices)))


@dataclass(frozen=True)
class Rehearsal:
    """The seconds of a first forward and backward pass, by the host's clock."""

    seconds: float = 0.0
    waited_seconds: float = 0.0


class LateSums:
    """Losses and statistics of norms that are added up over the world later, many in one message:
    for kinds of exchange in which a step waits for nobody."""

    _MOST = 16

    def __init__(self, world: World, statistics: StepStatistics) -> None:
        self._world, self._statistics = world, statistics
        self._sums: list[torch.Tensor] = []
        self._plans: list[StepPlan] = []
        self._losses: list[torch.Tensor] = []

    def add(self, sums: torch.Tensor, plan: StepPlan) -> torch.Tensor:
        """The step's loss, which is known after `add_up`. Statistics of many norms add up to much
        memory, so that they do not wait for long."""
        if len(self._sums) == self._MOST:
            self.add_up()
        self._sums.append(sums)
        self._plans.append(plan)
        self._losses.append(torch.zeros_like(sums[0]))
        return self._losses[-1]

    def add_up(self) -> None:
        if self._sums:
            added = self._world.add_up(torch.stack(self._sums))
            for sums, plan, loss in zip(added, self._plans, self._losses, strict=True):
                loss.copy_(sums[0] / plan.num_units)
                if len(sums) > 1:
                    self._statistics.absorb(sums[1:] / len(plan.indices))
            self._sums, self._plans, self._losses = [], [], []


class Stepper:
    """Holds what every step needs, so that the loop can simply ask for the next one."""

    def __init__(
        self,
        recipe: Recipe,
        arithmetic: Arithmetic,
        task: Task,
        state: TrainState,
        world: World,
        clock: PhaseClock,
    ) -> None:
        self.recipe, self.task, self.state, self.world = recipe, task, state, world
        self.arithmetic, self.clock = arithmetic, clock
        self.exchange = state.exchange
        self.watch = self.exchange.watch
        self.marks = self.watch.marks
        # A compiler joins small operations itself, and cannot look through views of one buffer.
        side_by_side = world.device.type != "cpu" and not recipe.compile
        self.statistics = StepStatistics(state.network, side_by_side)
        is_watched = world.is_first and can_watch(world.device, recipe.compile)
        self.readiness = Readiness(state.network, is_watched)
        self._late = LateSums(world, self.statistics)
        self.rehearsal = Rehearsal()
        clip, scaler = recipe.optimizer.clip_norm, state.scaler
        self.exchange.attach(
            Updating(
                state.optimizer,
                scaler,
                clock,
                self._move_average,
                needs_all_gradients=clip is not None or scaler.is_enabled(),
                is_compiled=recipe.compile,
            )
        )
        self.loss_scale = 1.0
        """By which losses are multiplied where nobody here scales them."""

    def step(
        self, plan: StepPlan, batches: Sequence[Any], rate: float, want_norm: bool
    ) -> StepResult:
        with self.clock.phase(COMPUTE):
            self.marks.limit_lead()
            self.marks.mark("begin")
            loss_sum = self.forward_backward(plan, batches)
        self.clock.move(self.watch.waited_seconds(), COMPUTE, NETWORK)
        with self._exchanging():
            self.exchange.reduce_gradients()
            loss = self._combine(loss_sum, plan)
            self.marks.mark("reduced")
        with self.clock.phase(OPTIMIZER):
            norm = self._update(rate, want_norm)
        self._agree_on_weights()
        self.marks.end_step()
        return StepResult(loss, norm, plan.num_units)

    def forward_backward(self, plan: StepPlan, batches: Sequence[Any]) -> torch.Tensor:
        model, last = self.exchange.model, len(batches) - 1
        self.watch.start_step()
        total = torch.zeros((), device=self.world.device)
        for number, (index, batch) in enumerate(zip(plan.mine, batches, strict=True)):
            torch.manual_seed(torch_seed(self.recipe.seed, index))
            is_last = number == last
            with (
                self.exchange.micro_batch(is_last),
                self.readiness.watching() if is_last else nullcontext(),
            ):
                with self.exchange.forward(), self._precision():
                    loss_sum = self.task.loss(model, batch)
                # DDP divides by the size of the world; this takes it back.
                scaled = loss_sum * (self.loss_scale * self.world.size / plan.num_units)
                torch.autograd.backward(self.state.scaler.scale(scaled))
            self.statistics.end_micro_batch()
            total += loss_sum.detach()
        return total

    def _exchanging(self) -> AbstractContextManager[None]:
        """One process alone only takes in its own statistics, and no report should say network."""
        clock = self.clock
        return clock.phase(NETWORK) if self.world.size > 1 else clock.more_of(COMPUTE)

    def _precision(self) -> AbstractContextManager[Any]:
        return multiplying_in(self.arithmetic, self.world.device)

    def _combine(self, loss_sum: torch.Tensor, plan: StepPlan) -> torch.Tensor:
        """The step's mean loss and the running averages of batch norm, in one small all-reduce;
        this process's share of them where it makes its steps alone."""
        sums = torch.cat([loss_sum.view(1), self.statistics.take().to(loss_sum.dtype)])
        if not self.exchange.is_synchronous:
            self.statistics.absorb(sums[1:] / len(plan.mine))
            sums = sums[:1]
        # A moving average of the weights also averages what norms have seen, step by step.
        is_needed_now = len(sums) > 1 and self.state.average is not None
        if self.exchange.runs_ahead and not is_needed_now:
            return self._late.add(sums, plan)
        self.world.add_up(sums)
        self.statistics.absorb(sums[1:] / len(plan.indices))
        return sums[0] / plan.num_units

    def _update(self, rate: float, want_norm: bool) -> torch.Tensor | None:
        state, clip = self.state, self.recipe.optimizer.clip_norm
        set_rate(state.optimizer, rate * self.exchange.rate_factor)
        if self.exchange.updates_late:
            return self.exchange.update_late(want_norm)
        norm = None
        if clip is not None or want_norm:
            state.scaler.unscale_(state.optimizer)
            norm = gradient_norm(state.network, clip)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
        return norm

    def _agree_on_weights(self) -> None:
        step = self.state.progress.step + 1
        if not self.exchange.is_synchronous:
            self.marks.mark("updated")
            with self.clock.more_of(NETWORK):
                self.exchange.after_update(step, step == self.recipe.steps)
                self.marks.mark("agreed")
        if not self.exchange.updates_late:
            self._move_average()

    def _move_average(self) -> None:
        if self.state.average is not None:
            with self.clock.more_of(OPTIMIZER):
                self.state.average.update_parameters(self.exchange.agreed)

    def finish(self) -> None:
        """Before weights are looked at: all steps so far are done completely."""
        self.exchange.finish()

    def rehearse(self, plan: StepPlan, batches: Sequence[Any]) -> None:
        """One backward whose gradients are thrown away. DDP lays out its buckets anew after the
        first backward, and with four or more processes the order of summation follows the layout:
        without this, the first step after a restart would round differently. What it took, and
        what of that was waiting, are a first glimpse of a step."""
        began = time.perf_counter()
        self.forward_backward(plan, batches)
        self.rehearsal = Rehearsal(time.perf_counter() - began, self.watch.waited_seconds())
        self.exchange.lay_out()
        self._forget()

    def _forget(self) -> None:
        self.statistics.take()
        self.state.optimizer.zero_grad(set_to_none=True)

    def why_not_exact(self, batch: Any) -> str | None:
        """Which operation of a pass cannot be made to repeat itself; None where all can. Tried with
        the bare network: what fails in one that is wrapped would leave the others waiting."""
        try:
            with exactly(strictly=True):
                with self._precision():
                    loss_sum = self.task.loss(self.state.network, batch)
                torch.autograd.backward(loss_sum)
        except RuntimeError as error:
            if "deterministic" not in str(error):
                raise
            return str(error).partition(",")[0].partition("\n")[0]
        finally:
            self._forget()
        return None

    def flops_per_unit(self, plan: StepPlan, batch: Any) -> float | None:
        """Counted on one micro-batch whose gradients are thrown away. The bare network, because a
        wrapped one may talk to the others; and not compiled, because compiled code is not seen."""

        def work() -> None:
            with self._precision():
                loss_sum = self.task.loss(self.state.network, batch)
            torch.autograd.backward(loss_sum)

        counted = None if self.recipe.compile else count_flops(work)
        self._forget()
        return counted / self.task.num_units(plan.mine[0]) if counted else None

    def take_measures(self) -> Measures:
        with self.clock.more_of(NETWORK):
            self._late.add_up()
            self.exchange.agree()
        return Measures(
            reduced_bytes=self.watch.take_reduced_bytes(),
            loss_scale=self._loss_scale(),
            steps=self.marks.take_steps(),
        )

    def _loss_scale(self) -> torch.Tensor | None:
        scaler = self.state.scaler
        one = torch.ones((), device=self.world.device)
        return scaler.scale(one) if scaler.is_enabled() else None


def gradient_norm(network: nn.Module, clip: float | None) -> torch.Tensor:
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(network.parameters(), clip, norm)
    return norm
