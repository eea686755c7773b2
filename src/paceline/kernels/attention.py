"""Attention over packed tokens on a CPU: a head of a sentence at a time, nothing gathered.

At the length of sentences the products are small; gathering padded blocks, masking and copying back
took three times as long as the arithmetic.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from paceline.kernels import tokens
from paceline.kernels.operation import (
    are_floats,
    count_as,
    define,
    differentiate,
    is_used,
    require,
    running,
)
from paceline.kernels.tokens import Chance, draw_seeds

NAME = "attention"

_NUM_LANES = 16
"""The largest of the C source's LANES: widths and rooms are multiples of it."""


class Extent(NamedTuple):
    """How far attention reaches; lengths are those of the longest sentences."""

    num_heads: int
    query_length: int
    key_length: int
    is_causal: bool

    def head_width(self, projected: int, has_key_value: bool) -> int:
        """`projected` is the width of queries, or of queries, keys and values side by side."""
        return projected // (self.num_heads * (1 if has_key_value else 3))

    @property
    def key_room(self) -> int:
        return -(-self.key_length // _NUM_LANES) * _NUM_LANES


def can_take(projected: Tensor, key_value: Tensor | None, extent: Extent) -> bool:
    return (
        tokens.can_take(projected)
        and (key_value is None or tokens.can_take(key_value))
        and extent.head_width(projected.shape[1], key_value is not None) % _NUM_LANES == 0
        and extent.query_length > 0
        and extent.key_length > 0
        and is_used(NAME)
    )


def attend(
    projected: Tensor, key_value: Tensor | None, starts: Tensor, extent: Extent, rate: float
) -> Tensor:
    """What each query finds, (tokens, width).

    `starts` holds, of queries and of keys, the number of each sentence's first token and one past
    the last, (2, sentences + 1).
    """
    seeds = draw_seeds() if rate else torch.zeros(2, dtype=torch.int64)
    return cast(Tensor, _attention(projected, key_value, starts, list(extent), seeds, rate)[0])


class _Plan(ctypes.Structure):
    """The C source's `plan`."""

    _fields_ = (
        ("query_starts", ctypes.c_void_p),
        ("key_starts", ctypes.c_void_p),
        *(
            (name, ctypes.c_ssize_t)
            for name in (
                "sentences",
                "heads",
                "head_width",
                "query_room",
                "key_room",
                "is_causal",
                "query_step",
                "key_step",
            )
        ),
        ("scale", ctypes.c_float),
        ("drop", Chance),
    )

    @property
    def width(self) -> int:
        return cast(int, self.heads * self.head_width)


def _declare(library: ctypes.CDLL) -> None:
    pointer, number, plan = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.POINTER(_Plan)
    library.attention_work.argtypes, library.attention_work.restype = [plan], number
    library.attention_forward.argtypes = [*[pointer] * 3, plan, number, *[pointer] * 3]
    library.attention_backward.argtypes = [*[pointer] * 5, plan, number, *[pointer] * 4]
    library.attention_forward.restype = library.attention_backward.restype = None


def _planned(projected: Tensor, key_value: Tensor | None, starts: Tensor, *rest: Any) -> _Plan:
    """It points at `starts`, which must be contiguous and outlive it."""
    require(are_floats(projected, key_value), "attention is over float32 tokens")
    extent, (seeds, rate) = Extent(*rest[0]), rest[1:]
    keys = projected if key_value is None else key_value
    head_width = extent.head_width(projected.shape[1], key_value is not None)
    first, num_starts = starts.data_ptr(), starts.shape[1]
    return _Plan(
        first,
        first + num_starts * starts.element_size(),
        num_starts - 1,
        extent.num_heads,
        head_width,
        extent.query_length,
        extent.key_room,
        extent.is_causal,
        projected.shape[1],
        keys.shape[1],
        head_width**-0.5,
        Chance.of(seeds, rate),
    )


def _check(projected: Tensor, key_value: Tensor | None, starts: Tensor) -> None:
    last_query, last_key = starts[:, -1].tolist()
    num_keys = len(projected if key_value is None else key_value)
    is_inside = last_query <= len(projected) and last_key <= num_keys
    require(is_inside, "attention wants sentences that end within its tokens")


def _addresses(projected: Tensor, key_value: Tensor | None, width: int) -> tuple[int, int, int]:
    """Of the first query, key and value; side by side they are `width` floats apart."""
    first, step = projected.data_ptr(), width * projected.element_size()
    if key_value is None:
        return first, first + step, first + 2 * step
    return first, key_value.data_ptr(), key_value.data_ptr() + step


def _scratch(kernel: ctypes.CDLL, plan: _Plan) -> tuple[int, Tensor]:
    num_threads = torch.get_num_threads()
    return num_threads, torch.empty(num_threads * kernel.attention_work(plan))


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _run(
    projected: Tensor, key_value: Tensor | None, starts: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    kernel = running(NAME, _declare)
    projected, key_value = projected.contiguous(), _contiguous(key_value)
    starts = starts.contiguous()
    _check(projected, key_value, starts)
    plan = _planned(projected, key_value, starts, *rest)
    require(plan.head_width % _NUM_LANES == 0, f"attention is not for heads of {plan.head_width}")
    context, weights = _fake(projected, key_value, starts, *rest)
    num_threads, work = _scratch(kernel, plan)
    kernel.attention_forward(
        *_addresses(projected, key_value, plan.width),
        plan,
        num_threads,
        work.data_ptr(),
        weights.data_ptr(),
        context.data_ptr(),
    )
    return context, weights


def _fake(
    projected: Tensor, key_value: Tensor | None, starts: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """What is found, and the softmax's weights, [sentence * head][query][key]."""
    extent = Extent(*rest[0])
    width = projected.shape[1] // (3 if key_value is None else 1)
    num_blocks = (starts.shape[1] - 1) * extent.num_heads
    return projected.new_empty(projected.shape[0], width), projected.new_empty(
        num_blocks, extent.query_length, extent.key_room
    )


def _run_backward(
    g: Tensor, weights: Tensor, projected: Tensor, key_value: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    kernel = running(NAME, _declare)
    projected, key_value, g = projected.contiguous(), _contiguous(key_value), g.contiguous()
    starts, weights = rest[0].contiguous(), weights.contiguous()
    plan = _planned(projected, key_value, starts, *rest[1:])
    to_projected, to_key_value = _fake_backward(g, weights, projected, key_value)
    num_threads, work = _scratch(kernel, plan)
    found = to_key_value if key_value is not None else None
    kernel.attention_backward(
        g.data_ptr(),
        *_addresses(projected, key_value, plan.width),
        weights.data_ptr(),
        plan,
        num_threads,
        work.data_ptr(),
        *_addresses(to_projected, found, plan.width),
    )
    return to_projected, to_key_value


def _fake_backward(
    _g: Tensor, _weights: Tensor, projected: Tensor, key_value: Tensor | None, *_rest: Any
) -> tuple[Tensor, Tensor]:
    """Gradients of both inputs; nothing where there is only one."""
    other = projected.new_empty(0) if key_value is None else torch.empty_like(key_value)
    return torch.empty_like(projected), other


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    projected, key_value, starts, ctx.extent, seeds, ctx.rate = inputs
    ctx.save_for_backward(output[1], projected, key_value, starts, seeds)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g: Tensor, _none: None) -> tuple[Tensor | None, ...]:
    weights, projected, key_value, starts, seeds = ctx.saved_tensors
    plan = (starts, ctx.extent, seeds, ctx.rate)
    to_projected, to_key_value = _attention_backward(g, weights, projected, key_value, *plan)
    other = to_key_value if key_value is not None else None
    return to_projected, other, None, None, None, None


def _flops(
    projected: torch.Size, key_value: torch.Size | None, starts: torch.Size, *rest: Any, **_: Any
) -> int:
    """Two products of every head, over padded sentences as torch's own operations have them."""
    extent = Extent(*cast("Sequence[Any]", rest[0]))
    area = (starts[1] - 1) * extent.num_heads * extent.query_length * extent.key_room
    return 4 * area * extent.head_width(projected[1], key_value is not None)


def _flops_backward(_g: torch.Size, _weights: torch.Size, *inputs: Any, **_: Any) -> int:
    return 2 * _flops(*inputs)


_PLAN = "Tensor starts, SymInt[] extent, Tensor seeds, float rate"

define(f"attention(Tensor projected, Tensor? key_value, {_PLAN}) -> (Tensor, Tensor)", _run, _fake)
_attention_backward = define(
    "attention_backward(Tensor g, Tensor weights, Tensor projected, Tensor? key_value, "
    f"{_PLAN}) -> (Tensor, Tensor)",
    _run_backward,
    _fake_backward,
)
_attention = differentiate("attention", _run, _keep, _backward)
count_as("attention", _flops)
count_as("attention_backward", _flops_backward)
