"""Gradients of embeddings, in which a step looks up a few rows of many.

The gradient of a lookup is zero but for the rows that were looked up: a table that is only looked
up is sent as those rows. One that is also the output layer (tied weights) has a whole gradient from
there, which backward gives first, and a few rows from lookups, which it gives last: the whole
gradient leaves at once, and the rows that lookups change are sent again at the end. Either way
every sum is made of the same numbers in the same order as if all had been sent at the end.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from paceline.train.reduce.buckets import Bucket, Sending
from paceline.world import wait_for_others

_LARGE = 4
"""Buckets of which a table must have the size to be worth the trouble."""
_FEW_ROWS = 0.25
"""Share of the rows that a step of all processes may look up."""
_CHANGES_ROWS = ("max_norm", "scale_grad_by_freq", "sparse")
"""Options of a lookup whose gradient is not the plain one."""


class Table:
    """A weight in which rows are looked up; backward sees lookups in another tensor of the same
    values."""

    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight
        self.looked_up = weight.detach().requires_grad_()
        self._touched = torch.zeros(len(weight), dtype=torch.uint8)
        """Rows of this step: 1 where this process, after `agree_on_rows` any, looked it up."""
        self._asked: Any = None
        self._num_lookups = self._num_linear = self._num_other = 0
        """Uses in the rehearsal."""

    def look_up(self, rows: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        self._touched.index_fill_(0, rows.flatten(), 1)
        return F.embedding(rows, self.looked_up, **options)

    def forget_rows(self) -> None:
        self._touched.zero_()

    def ask_others(self, group: Any) -> None:
        """Which rows they have looked up."""
        largest = dist.ReduceOp.MAX
        self._asked = dist.all_reduce(self._touched, op=largest, group=group, async_op=True)

    def agree_on_rows(self) -> None:
        if self._asked is not None:
            wait_for_others(self._asked)
            self._asked = None

    def rows(self) -> torch.Tensor:
        return self._touched.nonzero().flatten()

    def note_use(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """In the rehearsal."""
        if _is_plain_linear(func, args, kwargs):
            self._num_linear += 1
        elif lookup_of(func, args, kwargs) is None:
            self._num_other += 1
        else:
            self._num_lookups += 1

    def may_hand_over(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether this is the one use that gives the weight its gradient, as a linear layer."""
        is_only = (self._num_linear, self._num_other) == (1, 0)
        needs_gradient = torch.is_grad_enabled() and args[0].requires_grad
        return is_only and _is_plain_linear(func, args, kwargs) and needs_gradient

    def is_worth_it(self, num_procs: int) -> bool:
        """As seen in the rehearsal."""
        return 0 < len(self.rows()) * num_procs <= _FEW_ROWS * len(self.weight)

    def is_added_last(self, when_whole: int, when_looked_up: int) -> bool:
        """Whether autograd adds one lookup to all else that the weight gets: to add it later is to
        add the same numbers in the same order then."""
        return self._num_lookups == 1 and when_whole < when_looked_up


def is_candidate(weight: nn.Parameter, bucket_bytes: int) -> bool:
    size = weight.numel() * weight.element_size()
    return weight.dim() == 2 and weight.is_contiguous() and size >= _LARGE * bucket_bytes


def lookup_of(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The rows and options of a lookup whose gradient is the plain one."""
    if func is not F.embedding or len(args) != 2 or any(kwargs.get(o) for o in _CHANGES_ROWS):
        return None
    return args[0], kwargs


def _is_plain_linear(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    has_bias = any(value is not None for value in (*args[2:], *kwargs.values()))
    return func is F.linear and not has_bias and not torch.is_autocast_enabled(args[0].device.type)


class RowsBucket(Bucket):
    """Of a table that is only looked up."""

    def __init__(self, table: Table) -> None:
        self.rows = Sending()
        super().__init__([table.weight], [self.rows])
        self.table = table
        self._sums = torch.zeros_like(table.weight)
        self._numbers = self._not_zero = torch.empty(0, dtype=torch.int64)

    def begin_last_pass(self) -> None:
        return

    def rows_are_ready(self, world_size: int) -> None:
        self.table.agree_on_rows()
        self._numbers = self.table.rows()
        self.rows.give(self._rows_of(self._numbers).div_(world_size))
        self.table.looked_up.grad = None
        self.table.forget_rows()

    def _rows_of(self, numbers: torch.Tensor) -> torch.Tensor:
        given = self.table.looked_up.grad
        if given is None:
            return self._sums.new_zeros(len(numbers), self._sums.shape[1])
        return given[numbers]

    def complete(self, world_size: int) -> None:
        if not self.rows.is_ready:
            self.rows_are_ready(world_size)

    def give_back(self) -> None:
        assert self.rows.values is not None  # noqa: S101  (it has been waited for)
        self._sums[self._not_zero] = 0
        self._sums[self._numbers] = self.rows.values
        self._not_zero = self._numbers
        self.table.weight.grad = self._sums
        self.rows.values = None


class TiedBucket(RowsBucket):
    """Of a table that is also used as a whole: its gradient leaves in pieces as soon as it is
    known, and then the rows that lookups changed."""

    def __init__(self, table: Table, piece_bytes: int) -> None:
        super().__init__(table)
        weight = table.weight
        num_rows = max(1, piece_bytes // (weight.shape[1] * weight.element_size()))
        self.pieces = [slice(at, at + num_rows) for at in range(0, len(weight), num_rows)]
        self.whole = [Sending() for _ in self.pieces]
        self.sendings = [*self.whole, self.rows]
        self._own = torch.zeros_like(weight)
        """What the last pass of this process gave, but for lookups."""
        self._before: torch.Tensor | None = None

    @property
    def is_given(self) -> bool:
        return self.whole[-1].is_ready

    def begin_last_pass(self) -> None:
        """Of a step's passes only the last is cut in two: autograd adds both of its uses up before
        it adds them to what earlier passes gave, and so must we."""
        self.table.forget_rows()
        self._before, self.table.weight.grad = self.table.weight.grad, None

    def gradient_is_ready(self, world_size: int) -> None:
        weight = self.table.weight
        if weight.grad is None:
            self._own.zero_()
        else:
            self._own.copy_(weight.grad)
        weight.grad = None
        for number in range(len(self.pieces)):
            self.piece_is_ready(number, world_size)

    def own_piece(self, number: int) -> torch.Tensor:
        """To be filled with these rows of the gradient."""
        return self._own[self.pieces[number]]

    def piece_is_ready(self, number: int, world_size: int) -> None:
        rows = self.pieces[number]
        own, sums = self._own[rows], self._sums[rows]
        if self._before is not None:
            own = self._before[rows] + own
        torch.div(own, world_size, out=sums)
        self.whole[number].give(sums.view(-1))

    def _rows_of(self, numbers: torch.Tensor) -> torch.Tensor:
        rows = self._own[numbers] + super()._rows_of(numbers)
        if self._before is not None:
            rows = self._before[numbers] + rows
        self._before = None
        return rows

    def complete(self, world_size: int) -> None:
        if not self.is_given:
            self.gradient_is_ready(world_size)
        super().complete(world_size)

    def give_back(self) -> None:
        assert self.rows.values is not None  # noqa: S101  (it has been waited for)
        self._sums[self._numbers] = self.rows.values
        self.table.weight.grad = self._sums
        for sending in self.sendings:
            sending.values = None


class EarlyLinear(torch.autograd.Function):
    """A linear layer that hands over the gradient of its weight piece by piece, before it
    calculates that of its input, so that it leaves earlier. The products are autograd's own: a sum
    over the samples for each value, however many rows are asked for at once."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bucket: TiedBucket,
        hand_over: Callable[[int], None],
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.bucket, ctx.hand_over = bucket, hand_over
        return F.linear(inputs, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        inputs, weight = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        samples = inputs.reshape(-1, inputs.shape[-1])
        for number, rows in enumerate(ctx.bucket.pieces):
            torch.mm(flat[:, rows].t(), samples, out=ctx.bucket.own_piece(number))
            ctx.hand_over(number)
        needed = ctx.needs_input_grad[0]
        return flat.mm(weight).view(inputs.shape) if needed else None, None, None, None
