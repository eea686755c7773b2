"""Batch norm, addition and activation as one operation on a CPU.

On 32-pixel pictures these three take half of a ResNet's step, nearly all of it memory traffic.
"""

import ctypes
from typing import Any, cast

import torch
from torch import Tensor

from paceline.kernels.operation import (
    LONGEST_ROW,
    address,
    addresses_of_rows,
    are_floats,
    define,
    differentiate,
    is_used,
    is_usual,
    laid_out,
    require,
    running,
)

NAME = "norm"

_NUM_STATISTICS = 5
"""Mean, unbiased variance, 1 / standard deviation, and the norm as x * scale + shift."""


def can_take(x: Tensor) -> bool:
    return is_usual(x) and is_used(NAME)


def norm_activate(
    x: Tensor, before: Tensor | None, weight: Tensor, bias: Tensor, eps: float, is_smooth: bool
) -> tuple[Tensor, Tensor]:
    """The activation of norm(x) + before (SiLU if smooth, otherwise ReLU), and the mean and
    unbiased variance that were used, (2, channels)."""
    out, statistics = _norm_activate(x, before, weight, bias, eps, is_smooth)
    return cast(Tensor, out), cast(Tensor, statistics[:2])


def _declare(library: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
    library.norm_forward.argtypes = [
        *[pointer] * 4,
        ctypes.c_float,
        *[number] * 3,
        *[pointer] * 6,
    ]
    library.norm_backward.argtypes = [*[pointer] * 7, *[number] * 3, *[pointer] * 4]
    library.norm_forward.restype = library.norm_backward.restype = None


def _check(x: Tensor, before: Tensor | None, *rows: Tensor) -> None:
    require(are_floats(x, before, *rows), "norm_activate takes float32 only")
    shape = x.shape
    is_right = len(shape) == 4 and x.numel() > 0 and shape[1] <= LONGEST_ROW
    is_right = is_right and (before is None or before.shape == shape)
    is_right = is_right and all(row.shape[-1] == shape[1] for row in rows)
    require(is_right, "norm_activate is not for", shape)


def _run(
    x: Tensor, before: Tensor | None, weight: Tensor, bias: Tensor, eps: float, is_smooth: bool
) -> tuple[Tensor, Tensor]:
    _check(x, before, weight, bias)
    kernel, channels = running(NAME, _declare), x.shape[1]
    x, added = laid_out(x), laid_out(before) if before is not None else None
    weight, bias = weight.contiguous(), bias.contiguous()
    out, statistics = torch.empty_like(x), torch.empty(_NUM_STATISTICS, channels)
    kernel.norm_forward(
        x.data_ptr(),
        address(added),
        weight.data_ptr(),
        bias.data_ptr(),
        eps,
        is_smooth,
        x.numel() // channels,
        channels,
        out.data_ptr(),
        *addresses_of_rows(statistics),
    )
    return out, statistics


def _fake(x: Tensor, *_rest: Any) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(x, memory_format=torch.channels_last)
    return out, x.new_empty(_NUM_STATISTICS, x.shape[1])


def _run_backward(
    g: Tensor, x: Tensor, before: Tensor | None, statistics: Tensor, is_smooth: bool
) -> tuple[Tensor, Tensor, Tensor]:
    _check(x, before, statistics)
    require(g.shape == x.shape and are_floats(g), "norm_activate has a gradient like its input")
    kernel, channels = running(NAME, _declare), x.shape[1]
    g, x, added = laid_out(g), laid_out(x), laid_out(before) if before is not None else None
    gx, g_before, g_rows = _fake_backward(g, x, before)
    statistics = statistics.contiguous()
    mean, _, inv_std, scale, shift = addresses_of_rows(statistics)
    kernel.norm_backward(
        g.data_ptr(),
        x.data_ptr(),
        address(added),
        scale,
        shift,
        mean,
        inv_std,
        is_smooth,
        x.numel() // channels,
        channels,
        address(g_before) if before is not None else None,
        gx.data_ptr(),
        *addresses_of_rows(g_rows),
    )
    return gx, g_before, g_rows


def _fake_backward(
    _g: Tensor, x: Tensor, before: Tensor | None, *_rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, of what is added (nothing if there is none), and of weight and bias."""
    gx = torch.empty_like(x, memory_format=torch.channels_last)
    g_before = x.new_empty(0) if before is None else torch.empty_like(gx)
    return gx, g_before, x.new_empty(2, x.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, before, _, _, _, ctx.is_smooth = inputs
    ctx.save_for_backward(x, before, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g: Tensor, _none: None) -> tuple[Any, ...]:
    x, before, statistics = ctx.saved_tensors
    gx, g_before, g_rows = _norm_activate_backward(g, x, before, statistics, ctx.is_smooth)
    return gx, g_before if before is not None else None, *g_rows.unbind(), None, None


define(
    "norm_activate(Tensor x, Tensor? before, Tensor weight, Tensor bias, float eps, "
    "bool is_smooth) -> (Tensor, Tensor)",
    _run,
    _fake,
)
_norm_activate_backward = define(
    "norm_activate_backward(Tensor g, Tensor x, Tensor? before, Tensor statistics, "
    "bool is_smooth) -> (Tensor, Tensor, Tensor)",
    _run_backward,
    _fake_backward,
)
_norm_activate = differentiate("norm_activate", _run, _keep, _backward)
