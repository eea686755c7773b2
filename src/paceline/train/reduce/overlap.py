"""The gradients of every step, sent in the order of need and waited for as late as possible.

DDP sends beside backward and then waits for all. Here a weight is waited for where the next forward
pass first uses it: sending goes on beside the update and the forward pass as well. Gradients leave
as backward gives them until it ends; then those that the next forward pass needs first. The sums
are those of `plain`, so is the update: what changes is when things happen.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from paceline.record.schema import NETWORK, OPTIMIZER
from paceline.train.reduce.exchange import Exchange, Updating, send_first_weights
from paceline.world import World

_MORE_IN_BACKWARD = 2
"""Buckets that leave in backward's order beyond those that had arrived when it ended, so that the
line is never idle."""


class Bucket:
    """Gradients that are sent together."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.weights = list(weights)
        first = weights[0]
        self.sums = torch.empty(
            sum(w.numel() for w in weights), dtype=first.dtype, device=first.device
        )
        sizes = [weight.numel() for weight in weights]
        parts = torch.split(self.sums, sizes)
        self._views = [_laid_out_like(w, part) for w, part in zip(weights, parts, strict=True)]
        self.num_missing = len(self.weights)
        """Gradients that backward has not given yet."""
        self.work: Any = None
        """Its all-reduce, until somebody has waited for it."""

    @property
    def has_arrived(self) -> bool:
        return self.work is not None and bool(self.work.is_completed())

    def wait(self) -> None:
        self.work.wait()
        self.work = None

    def fill(self, world_size: int) -> None:
        """Take the gradients away from the weights; one that backward did not give is zero."""
        for weight, view in zip(self.weights, self._views, strict=True):
            if weight.grad is None:
                view.zero_()
            else:
                torch.div(weight.grad, world_size, out=view)
            weight.grad = None

    def give_back(self) -> None:
        for weight, view in zip(self.weights, self._views, strict=True):
            weight.grad = view


def _laid_out_like(weight: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """In its shape and memory format, which fast updates rely on."""
    if weight.is_contiguous():
        return flat.view(weight.shape)
    return flat.as_strided(weight.shape, weight.stride())


class OverlapExchange(Exchange):
    runs_ahead = True

    def __init__(self, network: nn.Module, world: World, bucket_bytes: int) -> None:
        super().__init__(network, world)
        self._bucket_bytes = bucket_bytes
        self._group = world.new_group()
        self._weights = [p for p in network.parameters() if p.requires_grad]
        self._buckets: list[Bucket] = []
        """In the order in which backward completes them."""
        self._bucket_of: dict[int, Bucket] = {}
        self._order: list[Bucket] = []
        """In which they are sent."""
        self._given: list[int] = []
        self._used: set[int] = set()
        """Weights by number: given gradients by backward, in its order; seen to be used."""
        self._sees_all_uses = True
        self._num_sent = self._most_arrived = 0
        self._is_last_pass = self._is_updating = False
        self._squares: torch.Tensor | None = None
        self._norm: torch.Tensor | None = None
        for number, weight in enumerate(self._weights):
            weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._on_gradient(number)
            )

    def begin(self) -> None:
        send_first_weights(self.network, self.world)

    def close(self) -> None:
        dist.destroy_process_group(self._group)

    def attach(self, updating: Updating) -> None:
        self._updating = updating

    @property
    def updates_late(self) -> bool:
        """Clipping needs all gradients before the first update, and so do fp16's overflows."""
        return not self._updating.needs_all_gradients

    def lay_out(self) -> None:
        """Buckets in the order of backward, as the first process saw it in the rehearsal."""
        given = [*self._given, *sorted({*range(len(self._weights))} - {*self._given})]
        weights = [self._weights[number] for number in self.world.send_value(given)]
        self._buckets = [Bucket(group) for group in grouped(weights, self._bucket_bytes)]
        self._bucket_of = {id(weight): b for b in self._buckets for weight in b.weights}
        self._order_by_need(len(self._buckets))
        # A weight whose use is not seen could be used before it is updated.
        self._sees_all_uses = {*self._given} <= self._used

    def _order_by_need(self, num_in_backward: int) -> None:
        """Backward gives last what forward needs first."""
        rest = reversed(self._buckets[num_in_backward:])
        self._order = [*self._buckets[:num_in_backward], *rest]

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self._is_last_pass = is_last
        if is_last:
            self._given, self._num_sent = [], 0
        yield
        self._is_last_pass = False

    def _on_gradient(self, number: int) -> Callable[[torch.Tensor], None]:
        def gradient_is_ready(weight: torch.Tensor) -> None:
            if not self._is_last_pass:
                return
            self._given.append(number)
            bucket = self._bucket_of.get(id(weight))
            if bucket is not None:
                bucket.num_missing -= 1
                if bucket.num_missing == 0:
                    bucket.fill(self.world.size)
                    self._send_what_is_ready()

        return gradient_is_ready

    def _send_what_is_ready(self) -> None:
        """In the agreed order, because all processes must send the same one after the other."""
        while self._num_sent < len(self._order) and not self._order[self._num_sent].num_missing:
            bucket = self._order[self._num_sent]
            bucket.work = dist.all_reduce(bucket.sums, group=self._group, async_op=True)
            self.watch.reduced_bytes += bucket.sums.numel() * bucket.sums.element_size()
            self._num_sent += 1

    def reduce_gradients(self) -> None:
        """Backward has ended: send what it did not complete, and wait if all is needed now."""
        arrived = sum(b.work is not None and b.work.is_completed() for b in self._buckets)
        self._most_arrived = max(self._most_arrived, arrived)
        for bucket in self._buckets:
            if bucket.num_missing:
                bucket.num_missing = 0
                bucket.fill(self.world.size)
        self._send_what_is_ready()
        if not self.updates_late:
            for bucket in self._order:
                bucket.wait()
                bucket.give_back()
        for bucket in self._buckets:
            bucket.num_missing = len(bucket.weights)

    def update_late(self, wants_norm: bool) -> torch.Tensor | None:
        """The optimizer is set for this step; its updates follow where weights are used next.
        Returns the norm of the gradients of the step before, if that was wanted."""
        norm, self._norm = self._norm, None
        self._squares = torch.zeros((), device=self.world.device) if wants_norm else None
        self._is_updating = True
        return norm

    def agree(self) -> None:
        """On the order of the next steps: how much can leave while backward goes on."""
        wanted = self._most_arrived + _MORE_IN_BACKWARD
        (wanted,) = self.world.largest_of([wanted])
        self._order_by_need(min(wanted, len(self._buckets)))
        self._most_arrived = 0

    @contextmanager
    def forward(self) -> Iterator[None]:
        if self._updating.is_compiled or not self._sees_all_uses:
            self.finish()
        if self._is_updating or not self._buckets:
            with _FirstUses(self._before_use):
                yield
        else:
            yield
        self.finish()

    def _before_use(self, weight: nn.Parameter) -> None:
        bucket = self._bucket_of.get(id(weight))
        if bucket is None:
            self._used |= {n for n, known in enumerate(self._weights) if known is weight}
        elif bucket.work is not None:
            self._update_arrived_until(bucket)
            self._update(bucket)

    def _update_arrived_until(self, bucket: Bucket) -> None:
        """While one is on its way, there is time for others."""
        for other in self._order:
            if bucket.has_arrived:
                return
            if other is not bucket and other.has_arrived:
                self._update(other)

    def _update(self, bucket: Bucket) -> None:
        updating = self._updating
        with updating.clock.more_of(NETWORK):
            bucket.wait()
        with updating.clock.more_of(OPTIMIZER):
            if self._squares is not None:
                self._squares += bucket.sums.square().sum()
            bucket.give_back()
            updating.optimizer.step()
            updating.optimizer.zero_grad(set_to_none=True)

    def finish(self) -> None:
        if not self._is_updating:
            return
        for bucket in self._order:
            if bucket.work is not None:
                self._update(bucket)
        if self._squares is not None:
            self._norm, self._squares = self._squares.sqrt(), None
        self._is_updating = False
        self._updating.after()


class _FirstUses(TorchFunctionMode):
    """Calls `before_use` with every parameter that an operation is about to read."""

    def __init__(self, before_use: Callable[[nn.Parameter], None]) -> None:
        super().__init__()
        self._before_use = before_use

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in (*args, *kwargs.values()):
            for part in value if isinstance(value, list | tuple) else (value,):
                if isinstance(part, nn.Parameter):
                    self._before_use(part)
        return func(*args, **kwargs)


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
