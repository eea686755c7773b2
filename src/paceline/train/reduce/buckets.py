"""Gradients that are sent together, what of them is on its way, and the best order to send them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.world import wait_for_others


class Sending:
    """Values that one all-reduce adds up over the world."""

    def __init__(self) -> None:
        self.values: torch.Tensor | None = None
        """None until backward has given them."""
        self.given_at = 0.0
        self.num_bytes = 0
        self.work: Any = None
        """The all-reduce, until somebody has waited for it."""

    @property
    def is_ready(self) -> bool:
        return self.values is not None

    @property
    def has_arrived(self) -> bool:
        return self.work is not None and bool(self.work.is_completed())

    def give(self, values: torch.Tensor) -> None:
        self.values, self.given_at = values, time.perf_counter()
        self.num_bytes = values.numel() * values.element_size()

    def leave(self, group: Any) -> None:
        assert self.values is not None  # noqa: S101  (only what is ready leaves)
        self.work = dist.all_reduce(self.values, group=group, async_op=True)

    def wait(self) -> None:
        wait_for_others(self.work)
        self.work = None


class Bucket:
    """Weights whose gradients are sent, waited for and used for their update together."""

    def __init__(self, weights: Sequence[nn.Parameter], sendings: Sequence[Sending]) -> None:
        self.weights, self.sendings = list(weights), list(sendings)

    @property
    def is_on_its_way(self) -> bool:
        return any(sending.work is not None for sending in self.sendings)

    @property
    def has_arrived(self) -> bool:
        return all(sending.has_arrived for sending in self.sendings)

    def wait(self) -> None:
        for sending in self.sendings:
            sending.wait()

    def complete(self, world_size: int) -> None:
        """Backward has ended: what it did not give is zero."""
        raise NotImplementedError

    def give_back(self) -> None:
        """The mean over the world to the weights, after `wait`."""
        raise NotImplementedError


class WholeBucket(Bucket):
    """All gradients of some weights, in one message."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        super().__init__(weights, [Sending()])
        first = weights[0]
        sizes = [weight.numel() for weight in weights]
        self._sums = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        parts = torch.split(self._sums, sizes)
        self._views = [_laid_out_like(w, part) for w, part in zip(weights, parts, strict=True)]
        self._num_missing = len(self.weights)

    def gradient_is_ready(self, world_size: int) -> None:
        self._num_missing -= 1
        if self._num_missing == 0:
            self._fill(world_size)

    def complete(self, world_size: int) -> None:
        if not self.sendings[0].is_ready:
            self._fill(world_size)

    def _fill(self, world_size: int) -> None:
        """Take the gradients away from the weights."""
        for weight, view in zip(self.weights, self._views, strict=True):
            if weight.grad is None:
                view.zero_()
            else:
                torch.div(weight.grad, world_size, out=view)
            weight.grad = None
        self.sendings[0].give(self._sums)

    def give_back(self) -> None:
        for weight, view in zip(self.weights, self._views, strict=True):
            weight.grad = view
        self.sendings[0].values = None
        self._num_missing = len(self.weights)


def _laid_out_like(weight: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """In its shape and memory format, which fast updates rely on."""
    if weight.is_contiguous():
        return flat.view(weight.shape)
    return flat.as_strided(weight.shape, weight.stride())


def grouped(weights: Sequence[nn.Parameter], most_bytes: int) -> Iterator[list[nn.Parameter]]:
    """Neighbours of one number type, so many that they have `most_bytes`, or one that has more."""
    group: list[nn.Parameter] = []
    num_bytes = 0
    for weight in weights:
        size = weight.numel() * weight.element_size()
        if group and (num_bytes + size > most_bytes or group[0].dtype != weight.dtype):
            yield group
            group, num_bytes = [], 0
        group.append(weight)
        num_bytes += size
    if group:
        yield group


_MORE_IN_BACKWARD = 2
"""Messages more than the line got through, so that it is never idle."""


@dataclass(frozen=True)
class Message:
    """As a step saw it. Times are all in one unit."""

    given_at: float
    num_bytes: int
    needed: int
    """The lower, the earlier in the next forward pass."""


def order_of_sending(messages: Sequence[Message], end: float, speed: float) -> list[int]:
    """The numbers of the messages in the order in which they had best leave, if backward ends then
    and the line has this speed.

    Backward gives last what the next forward pass needs first. While it goes on, the line gets what
    is needed first of what is there; after its end the rest follows in the order of need. So what
    is left for the very end is needed last, and the more of forward goes on beside it.
    """

    waiting = sorted(range(len(messages)), key=lambda number: messages[number].needed)
    order: list[int] = []
    clock = 0.0
    while waiting and clock < end:
        number = _next_to_leave([(n, messages[n]) for n in waiting], clock, speed)
        waiting.remove(number)
        order.append(number)
        clock = max(clock, messages[number].given_at) + messages[number].num_bytes / speed
    return [*order, *waiting]


def _next_to_leave(waiting: Sequence[tuple[int, Message]], clock: float, speed: float) -> int:
    """What is needed first of what has been there for as long as it takes to send it: steps differ,
    and the line must not wait for one that comes later in another. Else what comes first."""
    for number, message in waiting:
        if message.given_at + message.num_bytes / speed <= clock:
            return number
    return min(waiting, key=lambda one: one[1].given_at)[0]


class BackwardSeen:
    """How far the line got in the backward pass of a step."""

    def __init__(self, in_backward_order: Sequence[Sending], num_sent: int) -> None:
        """Right after backward, before it is completed."""
        now = time.perf_counter()
        begin = min((s.given_at for s in in_backward_order if s.is_ready), default=now)
        self.seconds = now - begin
        self.given_at = [
            s.given_at - begin if s.is_ready else self.seconds for s in in_backward_order
        ]
        arrived = [s.num_bytes for s in in_backward_order if s.has_arrived]
        self.arrived_bytes = sum(arrived)
        self._is_idle = len(arrived) == num_sent
        self._num_arrived = len(arrived)

    @property
    def bytes_per_second(self) -> float:
        """Of the line, and a little more; that of an idle one is not known but by trying."""
        if not self._num_arrived or not self.seconds:
            return 1.0
        more = 1 + _MORE_IN_BACKWARD / self._num_arrived
        return self.arrived_bytes / self.seconds * more * (2 if self._is_idle else 1)
