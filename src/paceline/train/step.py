"""One optimizer step: forward and backward of this process's micro-batches, reduction, update.

Losses are sums. Each micro-batch's gradient is divided by the units of the *whole* step over the
world, so ragged batches, accumulation and any number of processes give one and the same gradient.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
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
from paceline.train.measure.device_clock import DeviceMarks, MarkedSteps
from paceline.train.measure.flops import count_flops
from paceline.train.measure.readiness import Readiness, can_watch
from paceline.train.optimizer import set_rate
from paceline.train.precision import exactly, multiplying_in
from paceline.train.reduce import lay_out_buckets, watch_reduction
from paceline.train.state import TrainState
from paceline.world import World, without_reduction


@dataclass(frozen=True)
class StepPlan:
    """Which micro-batches of the stream make this step, and which of them are this process's."""

    indices: range
    mine: range
    num_units: int


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


def plan_step(task: Task, position: int, world: World) -> StepPlan:
    count = task.micro_batches_per_step(world.size)
    indices = range(position, position + count)
    first, last = world.rank * count // world.size, (world.rank + 1) * count // world.size
    return StepPlan(indices, indices[first:last], sum(map(task.num_units, indices)))


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
        self.marks = DeviceMarks(world.device)
        self.watch = watch_reduction(state.model, self.marks)
        # A compiler joins small operations itself, and cannot look through views of one buffer.
        side_by_side = world.device.type != "cpu" and not recipe.compile
        self.statistics = StepStatistics(state.network, side_by_side)
        is_watched = world.is_first and can_watch(world.device, recipe.compile)
        self.readiness = Readiness(state.network, is_watched)

    def step(
        self, plan: StepPlan, batches: Sequence[Any], rate: float, want_norm: bool
    ) -> StepResult:
        with self.clock.phase(COMPUTE):
            self.marks.limit_lead()
            self.marks.mark("begin")
            loss_sum = self.forward_backward(plan, batches)
        self.clock.move(self.watch.waited_seconds(), COMPUTE, NETWORK)
        with self.clock.phase(NETWORK):
            loss = self._combine(loss_sum, plan)
            self.marks.mark("reduced")
        with self.clock.phase(OPTIMIZER):
            norm = self._update(rate, want_norm)
            self.marks.end_step()
        return StepResult(loss, norm, plan.num_units)

    def forward_backward(self, plan: StepPlan, batches: Sequence[Any]) -> torch.Tensor:
        model, last = self.state.model, len(batches) - 1
        self.watch.start_step()
        total = torch.zeros((), device=self.world.device)
        for number, (index, batch) in enumerate(zip(plan.mine, batches, strict=True)):
            torch.manual_seed(torch_seed(self.recipe.seed, index))
            with without_reduction(model) if number < last else self.readiness.watching():
                with self._precision():
                    loss_sum = self.task.loss(model, batch)
                # DDP divides by the size of the world; this takes it back.
                scaled = loss_sum * (self.world.size / plan.num_units)
                torch.autograd.backward(self.state.scaler.scale(scaled))
            self.statistics.end_micro_batch()
            total += loss_sum.detach()
        return total

    def _precision(self) -> AbstractContextManager[Any]:
        return multiplying_in(self.arithmetic, self.world.device)

    def _combine(self, loss_sum: torch.Tensor, plan: StepPlan) -> torch.Tensor:
        """The step's mean loss and the running averages of batch norm, in one small all-reduce."""
        sums = torch.cat([loss_sum.view(1), self.statistics.take().to(loss_sum.dtype)])
        self.world.add_up(sums)
        self.statistics.absorb(sums[1:] / len(plan.indices))
        return sums[0] / plan.num_units

    def _update(self, rate: float, want_norm: bool) -> torch.Tensor | None:
        state, clip = self.state, self.recipe.optimizer.clip_norm
        set_rate(state.optimizer, rate)
        norm = None
        if clip is not None or want_norm:
            state.scaler.unscale_(state.optimizer)
            norm = gradient_norm(state.network, clip)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
        if state.average is not None:
            state.average.update_parameters(state.network)
        return norm

    def rehearse(self, plan: StepPlan, batches: Sequence[Any]) -> None:
        """One backward whose gradients are thrown away. DDP lays out its buckets anew after the
        first backward, and with four or more processes the order of summation follows the layout:
        without this, the first step after a restart would round differently."""
        self.forward_backward(plan, batches)
        lay_out_buckets(self.state.model)
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
