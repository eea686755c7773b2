"""Batch norm, addition and activation as one operation on a CPU.

On 32-pixel pictures these three take half of a ResNet's step, nearly all of it memory traffic.
No model lives here.
"""

import ctypes
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch.autograd.function import once_differentiable

from paceline.models.compiled import address, is_usual, laid_out, library


@cache
def _kernel() -> ctypes.CDLL | None:
    found = library("norm_kernel")
    if found is not None:
        pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
        found.norm_forward.argtypes = [
            *[pointer] * 4,
            ctypes.c_float,
            *[number] * 3,
            *[pointer] * 6,
        ]
        found.norm_backward.argtypes = [*[pointer] * 7, *[number] * 3, *[pointer] * 4]
        found.norm_forward.restype = found.norm_backward.restype = None
    return found


def can_take(x: torch.Tensor) -> bool:
    return is_usual(x) and _kernel() is not None


class How(NamedTuple):
    """What is not a tensor: SiLU follows if smooth, otherwise ReLU."""

    eps: float
    is_smooth: bool


def norm_activate(
    x: torch.Tensor,
    before: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
    how: How,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The activation of norm(x) + before, and the mean and unbiased variance that were used."""
    result = _NormActivate.apply(x, before, weight, bias, how)  # type: ignore[no-untyped-call]
    return cast("tuple[torch.Tensor, torch.Tensor, torch.Tensor]", result)


class _NormActivate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        before: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
        how: How,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        kernel, channels = _kernel(), x.shape[1]
        assert kernel is not None  # noqa: S101  (`can_take` was asked)
        out, (mean, var, *kept) = torch.empty_like(x), torch.empty(5, channels)
        added = laid_out(before) if before is not None else None
        kernel.norm_forward(
            x.data_ptr(),
            address(added),
            weight.data_ptr(),
            bias.data_ptr(),
            *how,
            x.numel() // channels,
            channels,
            out.data_ptr(),
            mean.data_ptr(),
            var.data_ptr(),
            *[row.data_ptr() for row in kept],
        )
        ctx.save_for_backward(x, added, mean, *kept)
        ctx.is_smooth = how.is_smooth
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor, *_unused: torch.Tensor) -> tuple[Any, ...]:
        x, added, mean, inv_std, scale, shift = ctx.saved_tensors
        kernel, channels = _kernel(), x.shape[1]
        assert kernel is not None  # noqa: S101  (forward has used it)
        g, gx, (gw, gb) = laid_out(g), torch.empty_like(x), torch.empty(2, channels)
        g_before = torch.empty_like(x) if added is not None else None
        kernel.norm_backward(
            g.data_ptr(),
            x.data_ptr(),
            address(added),
            scale.data_ptr(),
            shift.data_ptr(),
            mean.data_ptr(),
            inv_std.data_ptr(),
            ctx.is_smooth,
            x.numel() // channels,
            channels,
            address(g_before),
            gx.data_ptr(),
            gw.data_ptr(),
            gb.data_ptr(),
        )
        return gx, g_before, gw, gb, None
