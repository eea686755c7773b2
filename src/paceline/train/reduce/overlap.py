"""The gradients of every step, sent in the order of need and waited for as late as possible.

DDP sends beside backward and then waits for all. Here a weight is waited for where the next forward
pass first uses it: sending goes on beside the update and the forward pass as well. Gradients leave
while backward gives them, as far as the line gets, and then in the order in which the next forward
pass needs them (`buckets.order_of_sending`). Of large embeddings fewer bytes leave, or earlier
(`tables.py`). The sums are those of `plain`, so is the update: what changes is when things happen.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from paceline.errors import UserError
from paceline.record.schema import NETWORK, OPTIMIZER
from paceline.train.reduce.buckets import (
    BackwardSeen,
    Bucket,
    Message,
    Sending,
    WholeBucket,
    grouped,
    order_of_sending,
)
from paceline.train.reduce.exchange import Exchange, Updating, send_first_weights
from paceline.train.reduce.tables import (
    EarlyLinear,
    RowsBucket,
    Table,
    TiedBucket,
    is_candidate,
    lookup_of,
)
from paceline.world import World


class OverlapExchange(Exchange):
    runs_ahead = True

    def __init__(self, network: nn.Module, world: World, bucket_bytes: int) -> None:
        super().__init__(network, world)
        self._bucket_bytes = bucket_bytes
        self._group, self._urgent_group = world.new_group(), world.new_group()
        self._weights = [p for p in network.parameters() if p.requires_grad]
        self._number_of = {id(weight): number for number, weight in enumerate(self._weights)}
        self._tables: dict[int, Table] = {}
        """By the number of the weight; before the layout, of all that may become one."""
        self._buckets: list[Bucket] = []
        """In the order in which they arrive."""
        self._bucket_of: dict[int, Bucket] = {}
        self._backward_order: list[Sending] = []
        self._order: list[Sending] = []
        """In which backward completes them, and in which they are sent."""
        self._needed: list[int] = []
        """How early forward needs each, in the order of backward: 0 is first."""
        self._given: list[int] = []
        """Numbers of weights in the order in which backward gave their gradients; with the number
        of all weights added, of tables that were looked up."""
        self._used: set[int] = set()
        self._sees_all_uses = True
        self._num_sent = 0
        self._seen: BackwardSeen | None = None
        """Of the steps since the processes agreed last, the one in which the line got farthest."""
        self._is_last_pass = self._is_updating = False
        self._squares: torch.Tensor | None = None
        self._norm: torch.Tensor | None = None
        for number, weight in enumerate(self._weights):
            _when_given(weight, self._on_gradient(number))
            if is_candidate(weight, bucket_bytes):
                self._tables[number] = table = Table(weight)
                _when_given(table.looked_up, self._on_gradient(len(self._weights) + number))

    def begin(self) -> None:
        send_first_weights(self.network, self.world)

    def close(self) -> None:
        dist.destroy_process_group(self._group)
        dist.destroy_process_group(self._urgent_group)

    def attach(self, updating: Updating) -> None:
        self._updating = updating
        if updating.is_compiled:  # nobody sees what compiled code looks up
            self._tables.clear()

    @property
    def updates_late(self) -> bool:
        """Clipping needs all gradients before the first update, and so do fp16's overflows."""
        return not self._updating.needs_all_gradients

    def lay_out(self) -> None:
        """Buckets in the order of backward, as the first process saw it in the rehearsal."""
        # A weight whose use is not seen could be used before it is updated.
        seen = {*self._used, *(number + len(self._weights) for number in self._used)}
        self._sees_all_uses = {*self._given} <= seen
        given, tables = self.world.send_value([self._given, self._worthy_tables()])
        self._tables = {number: self._tables[number] for number in tables}
        place_of = {number: place for place, number in enumerate(given)}
        placed = [*self._place_tables(place_of), *self._place_others(place_of)]
        self._backward_order = [sending for _, sending in sorted(placed, key=lambda pair: pair[0])]
        self._bucket_of = {id(weight): b for b in self._buckets for weight in b.weights}
        self._needed = self._order_of_need()
        self._send_in(range(len(self._backward_order)))
        self._num_sent = 0

    def _worthy_tables(self) -> list[int]:
        worthy = [n for n, table in self._tables.items() if self._is_worthy(n, table)]
        for table in self._tables.values():
            table.forget_rows()
            table.looked_up.grad = None
        return worthy

    def _is_worthy(self, number: int, table: Table) -> bool:
        lookup = len(self._weights) + number
        if lookup not in self._given or not table.is_worth_it(self.world.size):
            return False
        if number not in self._given:
            return True
        return table.is_added_last(self._given.index(number), self._given.index(lookup))

    def _place_tables(self, place_of: dict[int, int]) -> Iterator[tuple[int, Sending]]:
        for number, table in self._tables.items():
            bucket = RowsBucket(table)
            if number in place_of:
                bucket = TiedBucket(table, self._bucket_bytes)
                yield from ((place_of[number], sending) for sending in bucket.whole)
            self._buckets.append(bucket)
            yield place_of[len(self._weights) + number], bucket.rows

    def _place_others(self, place_of: dict[int, int]) -> Iterator[tuple[int, Sending]]:
        """At the place of the last weight of each bucket; those that got no gradient at the end."""
        end, total = len(place_of), len(self._weights)
        places = {
            number: max(place_of.get(number, -1), place_of.get(total + number, -1)) % (end + 1)
            for number in range(total)
            if number not in self._tables
        }
        ordered = sorted(places, key=lambda number: (places[number], number))
        for group in grouped([self._weights[number] for number in ordered], self._bucket_bytes):
            bucket = WholeBucket(group)
            self._buckets.append(bucket)
            yield places[self._number_of[id(group[-1])]], bucket.sendings[0]

    def _order_of_need(self) -> list[int]:
        """Backward gives last what forward needs first; and a bucket is needed as a whole."""
        place_of = {id(s): place for place, s in enumerate(self._backward_order)}
        last_of = {
            id(s): max(place_of[id(other)] for other in bucket.sendings)
            for bucket in self._buckets
            for s in bucket.sendings
        }
        return [len(place_of) - 1 - last_of[id(s)] for s in self._backward_order]

    def _send_in(self, order: Iterable[int]) -> None:
        self._order = [self._backward_order[number] for number in order]
        place_of = {id(sending): place for place, sending in enumerate(self._order)}
        self._buckets.sort(key=lambda bucket: max(place_of[id(s)] for s in bucket.sendings))

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        self._is_last_pass = is_last
        if is_last:
            self._given, self._num_sent = [], 0
            for bucket in self._buckets:
                if isinstance(bucket, RowsBucket):
                    bucket.begin_last_pass()
        yield
        self._is_last_pass = False

    def _on_gradient(self, number: int) -> Callable[[torch.Tensor], None]:
        def gradient_is_ready(_weight: torch.Tensor) -> None:
            if self._is_last_pass:
                self._given.append(number)
                if self._buckets:
                    self._take_gradient(number)
                    self._send_what_is_ready()

        return gradient_is_ready

    def _take_gradient(self, number: int) -> None:
        is_lookup, index = divmod(number, len(self._weights))
        bucket = self._bucket_of[id(self._weights[index])]
        if isinstance(bucket, WholeBucket):
            bucket.gradient_is_ready(self.world.size)
        elif isinstance(bucket, RowsBucket) and is_lookup:
            with self._updating.clock.more_of(NETWORK):
                bucket.table.agree_on_rows()
            bucket.rows_are_ready(self.world.size)
        elif isinstance(bucket, TiedBucket) and not bucket.is_given:
            bucket.gradient_is_ready(self.world.size)
        else:
            raise _used_otherwise()

    def _send_what_is_ready(self) -> None:
        """In the agreed order, because all processes must send the same one after the other."""
        while self._num_sent < len(self._order) and self._order[self._num_sent].is_ready:
            sending = self._order[self._num_sent]
            sending.leave(self._group)
            self.watch.reduced_bytes += sending.num_bytes
            self._num_sent += 1

    def reduce_gradients(self) -> None:
        """Backward has ended: send what it did not complete, and wait if all is needed now."""
        seen = BackwardSeen(self._backward_order, self._num_sent)
        if self._seen is None or seen.arrived_bytes > self._seen.arrived_bytes:
            self._seen = seen
        for bucket in self._buckets:
            bucket.complete(self.world.size)
        self._send_what_is_ready()
        if not self.updates_late:
            for bucket in self._buckets:
                bucket.wait()
                bucket.give_back()

    def update_late(self, wants_norm: bool) -> torch.Tensor | None:
        """The optimizer is set for this step; its updates follow where weights are used next.
        Returns the norm of the gradients of the step before, if that was wanted."""
        norm, self._norm = self._norm, None
        self._squares = torch.zeros((), device=self.world.device) if wants_norm else None
        self._is_updating = True
        return norm

    def agree(self) -> None:
        """On the order of the next steps, as fits the fastest line and the slowest process."""
        if self._seen is None:
            return
        seen, self._seen = self._seen, None
        micros = [round(1e6 * seconds) for seconds in (seen.seconds, *seen.given_at)]
        sizes = [sending.num_bytes for sending in self._backward_order]
        speed, *told = self.world.largest_of([round(seen.bytes_per_second), *micros, *sizes])
        (end, *given_at), sizes = told[: len(micros)], told[len(micros) :]
        messages = list(map(Message, given_at, sizes, self._needed))
        self._send_in(order_of_sending(messages, end, max(speed, 1) / 1e6))

    @contextmanager
    def forward(self) -> Iterator[None]:
        if self._updating.is_compiled or not self._sees_all_uses:
            self.finish()
        if self._is_updating or self._tables or not self._buckets:
            with _Uses(self._call):
                yield
        else:
            yield
        self.finish()
        if self._is_last_pass and self._buckets:
            for table in self._tables.values():
                table.ask_others(self._urgent_group)

    def _call(self, func: Any, args: Any, kwargs: Any, weights: Sequence[nn.Parameter]) -> Any:
        """An operation that reads these weights: updated before, if they are not yet."""
        for weight in weights:
            bucket = self._bucket_of.get(id(weight))
            if bucket is not None and bucket.is_on_its_way:
                self._update_arrived_until(bucket)
                self._update(bucket)
            if not self._buckets:
                self._note_use(self._number_of.get(id(weight), -1), func, args, kwargs)
        if len(weights) == 1 and (
            table := self._tables.get(self._number_of.get(id(weights[0]), -1))
        ):
            return self._call_with_table(func, args, kwargs, table)
        return func(*args, **kwargs)

    def _call_with_table(self, func: Any, args: Any, kwargs: Any, table: Table) -> Any:
        """Backward sees what is looked up apart from the table itself."""
        bucket = self._bucket_of.get(id(table.weight))
        tied = bucket if isinstance(bucket, TiedBucket) else None
        lookup = lookup_of(func, args, kwargs)
        if lookup is not None and (self._is_last_pass or tied is None):
            return table.look_up(*lookup)
        if tied and self._is_last_pass and table.may_hand_over(func, args, kwargs):
            weight = table.weight.detach()  # or autograd would hand it over once more
            given = (args[0], weight, tied, self._hand_over(tied))
            return EarlyLinear.apply(*given)  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)

    def _note_use(self, number: int, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self._used.add(number)
        if self._is_last_pass and number in self._tables:
            self._tables[number].note_use(func, args, kwargs)

    def _hand_over(self, bucket: TiedBucket) -> Callable[[int], None]:
        def hand_over(piece: int) -> None:
            if bucket.is_given:
                raise _used_otherwise()
            bucket.piece_is_ready(piece, self.world.size)
            self._send_what_is_ready()

        return hand_over

    def _update_arrived_until(self, bucket: Bucket) -> None:
        """While one is on its way, there is time for others."""
        for other in self._buckets:
            if bucket.has_arrived:
                return
            if other is not bucket and other.has_arrived:
                self._update(other)

    def _update(self, bucket: Bucket) -> None:
        updating = self._updating
        with updating.clock.more_of(NETWORK):
            bucket.wait()
        with updating.clock.more_of(OPTIMIZER):
            bucket.give_back()
            if self._squares is not None:
                for weight in bucket.weights:
                    assert weight.grad is not None  # noqa: S101  (it has just got it)
                    self._squares += weight.grad.square().sum()
            updating.optimizer.step()
            updating.optimizer.zero_grad(set_to_none=True)

    def finish(self) -> None:
        if not self._is_updating:
            return
        for bucket in self._buckets:
            if bucket.is_on_its_way:
                self._update(bucket)
        if self._squares is not None:
            self._norm, self._squares = self._squares.sqrt(), None
        self._is_updating = False
        self._updating.after()


def _used_otherwise() -> UserError:
    return UserError(
        "reduce=overlap: an embedding is used otherwise than in the first step",
        "use reduce=plain, which waits for all of its gradients",
    )


def _when_given(leaf: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


class _Uses(TorchFunctionMode):
    """Has every operation that is about to read parameters called by somebody else."""

    def __init__(self, call: Callable[[Any, Any, Any, Sequence[nn.Parameter]], Any]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        weights = list(_parameters_in((*args, *kwargs.values())))
        return self._call(func, args, kwargs, weights) if weights else func(*args, **kwargs)


def _parameters_in(values: Sequence[Any]) -> Iterator[nn.Parameter]:
    for value in values:
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, nn.Parameter):
                yield part
