"""What the loop asks of every kind of exchange. As it stands, that of one process: nothing."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import nn

from paceline.train.measure.device_clock import DeviceMarks
from paceline.train.reduce.watch import ReductionWatch
from paceline.world import World

Tensors = dict[str, torch.Tensor]


class Exchange:
    """Kinds override what they do otherwise."""

    is_synchronous: ClassVar[bool] = True
    """Whether all processes have the same weights after every step."""
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

    def begin(self) -> None:
        """A run begins, with the first process's weights."""
        return

    def adopt(self) -> None:
        """All processes have the network's weights as they are now: agree on them."""
        return

    def paused(self) -> AbstractContextManager[Any]:
        """Around every micro-batch of a step but the last: keep gradients at home."""
        return nullcontext()

    def lay_out(self) -> None:
        """After the first backward of an attempt, whose gradients are thrown away."""
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
