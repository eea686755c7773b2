"""What the loop asks of every kind of exchange. As it stands, that of one process: nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from paceline.record.phases import PhaseClock
from paceline.train.measure.device_clock import DeviceMarks
from paceline.train.reduce.watch import ReductionWatch
from paceline.world import World

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Updating:
    """What makes new weights of gradients."""

    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    clock: PhaseClock
    after: Callable[[], None]
    """To be called when all weights of a step are updated."""
    needs_all_gradients: bool
    """Before the first weight can be updated."""
    is_compiled: bool


class Exchange:
    """Kinds override what they do otherwise."""

    is_synchronous: ClassVar[bool] = True
    """Whether all processes have the same weights after every step."""
    runs_ahead: ClassVar[bool] = False
    """Whether a step may end before what it sends has arrived, so that nothing else should wait
    for the other processes either."""
    has_own_state: ClassVar[bool] = False
    """Whether something of it differs between processes, so that each must save its own."""

    def __init__(self, network: nn.Module, world: World) -> None:
        self.network, self.world = network, world
        self.watch = ReductionWatch(DeviceMarks(world.device))

    @property
    def model(self) -> nn.Module:
        """The network as forward passes go through it."""
        return self.network

    @property
    def agreed(self) -> nn.Module:
        """The network with the weights that all processes have: evaluated and saved."""
        return self.network

    @property
    def rate_factor(self) -> float:
        """Times the learning rate of the schedule, for the updates of this process."""
        return 1.0

    def begin(self) -> None:
        """A run begins, with the first process's weights."""
        return

    def adopt(self) -> None:
        """All processes have the network's weights as they are now: agree on them."""
        return

    def attach(self, updating: Updating) -> None:
        """What updates the weights, for kinds that have it done when they see fit."""
        return

    def micro_batch(self, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward; gradients are exchanged beside the last of a step's."""
        return nullcontext()

    def forward(self) -> AbstractContextManager[Any]:
        """Around the forward pass of every micro-batch."""
        return nullcontext()

    def lay_out(self) -> None:
        """After the first backward of an attempt, whose gradients are thrown away."""
        return

    def reduce_gradients(self) -> None:
        """After the backward passes of a step."""
        return

    @property
    def updates_late(self) -> bool:
        """Whether it has the optimizer update weights itself, after `update_late`."""
        return False

    def update_late(self, wants_norm: bool) -> torch.Tensor | None:
        return None

    def finish(self) -> None:
        """All steps so far are done completely after this."""
        return

    def close(self) -> None:
        """It is not used any more."""
        return

    def agree(self) -> None:
        """On how to go on; called in all processes after the same steps."""
        return

    def after_update(self, _step: int, _is_last: bool) -> None:
        """The optimizer has made this process's step."""
        return

    def shared_tensors(self) -> Tensors:
        """What it remembers that is the same in all processes."""
        return {}

    def own_tensors(self) -> Tensors:
        """What it remembers that other processes have otherwise."""
        return {}

    def load_shared(self, _tensors: Tensors) -> None:
        """From a checkpoint of a world of any size."""
        return

    def load_own(self, _own: Tensors, _shared: Tensors) -> None:
        """From a checkpoint of a world of the same size: to go on exactly."""
        return


def laid_out_like(weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """In its memory format, which fused updates rely on."""
    if value.stride() == weight.stride():
        return value
    return torch.empty_like(weight, dtype=value.dtype).copy_(value)


def send_first_weights(network: nn.Module, world: World) -> None:
    """All processes begin with those of the first one."""
    for tensor in network.state_dict().values():
        world.send_tensor(tensor)
