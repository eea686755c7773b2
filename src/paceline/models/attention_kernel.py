"""Attention on a CPU by a compiled kernel: a head of a sentence at a time, nothing gathered.

At the length of sentences the products are small; gathering padded blocks, masking and copying back
took three times as long as the arithmetic.
"""

import ctypes
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paceline.models import token_kernel
from paceline.models.compiled import library
from paceline.models.packing import AttentionPlan
from paceline.models.token_kernel import Chance

_NUM_LANES = 16
"""The largest of the C source's LANES: widths and rooms are multiples of it."""


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


def can_take(projected: Tensor, key_value: Tensor | None, plan: AttentionPlan) -> bool:
    return (
        token_kernel.can_take(projected)
        and (key_value is None or token_kernel.can_take(key_value))
        and _head_width(projected, key_value, plan) % _NUM_LANES == 0
        and plan.queries.length > 0
        and plan.keys.length > 0
        and _kernel() is not None
    )


def attend(projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, rate: float) -> Tensor:
    return cast(Tensor, _Attend.apply(projected, key_value, plan, rate))  # type: ignore[no-untyped-call]


@cache
def _kernel() -> ctypes.CDLL | None:
    found = library("attention_kernel")
    if found is not None:
        pointer, number, plan = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.POINTER(_Plan)
        found.attention_work.argtypes, found.attention_work.restype = [plan], number
        found.attention_forward.argtypes = [*[pointer] * 3, plan, number, *[pointer] * 3]
        found.attention_backward.argtypes = [*[pointer] * 5, plan, number, *[pointer] * 4]
        found.attention_forward.restype = found.attention_backward.restype = None
    return found


def _head_width(projected: Tensor, key_value: Tensor | None, plan: AttentionPlan) -> int:
    return projected.shape[1] // (plan.num_heads * (3 if key_value is None else 1))


def _prepared(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, rate: float
) -> _Plan:
    head_width = _head_width(projected, key_value, plan)
    return _Plan(
        plan.queries.starts.data_ptr(),
        plan.keys.starts.data_ptr(),
        plan.keys.num_sentences,
        plan.num_heads,
        head_width,
        plan.queries.length,
        -(-plan.keys.length // _NUM_LANES) * _NUM_LANES,
        plan.is_causal,
        projected.shape[1],
        (projected if key_value is None else key_value).shape[1],
        head_width**-0.5,
        Chance.draw(rate) if rate else Chance.never(),
    )


def _addresses(projected: Tensor, key_value: Tensor | None, width: int) -> tuple[int, int, int]:
    """Of the first query, key and value; side by side they are `width` floats apart."""
    first, step = projected.data_ptr(), width * projected.element_size()
    if key_value is None:
        return first, first + step, first + 2 * step
    return first, key_value.data_ptr(), key_value.data_ptr() + step


def _scratch(kernel: ctypes.CDLL, plan: _Plan) -> tuple[int, Tensor]:
    num_threads = torch.get_num_threads()
    return num_threads, torch.empty(num_threads * kernel.attention_work(plan))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, rate: float
    ) -> Tensor:
        kernel, prepared = _kernel(), _prepared(projected, key_value, plan, rate)
        assert kernel is not None  # noqa: S101  (`can_take` was asked)
        width = plan.num_heads * prepared.head_width
        context = torch.empty(len(projected), width)
        num_blocks = prepared.sentences * plan.num_heads
        weights = torch.empty(num_blocks, prepared.query_room, prepared.key_room)
        num_threads, work = _scratch(kernel, prepared)
        kernel.attention_forward(
            *_addresses(projected, key_value, width),
            prepared,
            num_threads,
            work.data_ptr(),
            weights.data_ptr(),
            context.data_ptr(),
        )
        ctx.save_for_backward(projected, key_value, weights)
        # `plan` holds the tensors that `prepared` only points at.
        ctx.plan, ctx.prepared = plan, prepared
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        kernel, prepared = _kernel(), ctx.prepared
        assert kernel is not None  # noqa: S101  (forward has used it)
        projected, key_value, weights = ctx.saved_tensors
        gradient = gradient.contiguous()
        width = prepared.heads * prepared.head_width
        to_projected = torch.empty_like(projected)
        to_key_value = torch.empty_like(key_value) if key_value is not None else None
        num_threads, work = _scratch(kernel, prepared)
        kernel.attention_backward(
            gradient.data_ptr(),
            *_addresses(projected, key_value, width),
            weights.data_ptr(),
            prepared,
            num_threads,
            work.data_ptr(),
            *_addresses(to_projected, to_key_value, width),
        )
        return to_projected, to_key_value, None, None
