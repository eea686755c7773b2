"""3x3 convolutions on a CPU with a quarter to a half of the multiplications (Winograd).

torch's convolutions on CPUs multiply every pixel with every tap. The C source says how it is done
here, and `can_take` what it is made for.
"""

import ctypes
import math
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from paceline.kernels.operation import (
    LONGEST_ROW,
    address,
    are_floats,
    count_as,
    define,
    differentiate,
    is_used,
    is_usual,
    laid_out,
    require,
    running,
)

NAME = "conv"

_NUM_LANES = 16
"""The largest of the C source's LANES, so that results do not depend on it."""

_MIN_CHANNELS = 24
"""With fewer, turning tiles into points and back costs more than multiplying saves."""

_MIN_TILES = 96
"""The filters are transformed once a call; with fewer tiles that is the larger part of the work."""


def can_take(x: Tensor, weight: Tensor, is_halved: bool) -> bool:
    """Whether the kernel is there, made for this, and faster."""
    shape, filters = x.shape, weight.shape
    return (
        is_usual(x)
        and weight.dtype is torch.float32
        and min(filters[0], filters[1]) >= _MIN_CHANNELS
        and _fits(shape, filters, x.requires_grad)
        and shape[0] * _num_tiles(shape[2], shape[3], is_halved) >= _MIN_TILES
        and not torch.is_autocast_enabled("cpu")
        and is_used(NAME)
    )


def conv3x3(x: Tensor, weight: Tensor, is_halved: bool) -> Tensor:
    """The convolution with a border of one; halved, the largest of every 2x2 of its results."""
    return cast(Tensor, _conv3x3(x, weight, is_halved)[0])


def _fits(x: torch.Size, weight: torch.Size, needs_input_gradient: bool) -> bool:
    num_out, num_in = weight[0], weight[1]
    return (
        x[1] == num_in
        and max(num_out, num_in) <= LONGEST_ROW
        and num_out % _NUM_LANES == 0
        and num_in % (_NUM_LANES if needs_input_gradient else _NUM_LANES // 2) == 0
        and min(x[2], x[3]) >= 2
    )


def best_side(height: int, width: int, is_halved: bool) -> int:
    """The tile that leaves the fewest multiplications for a picture of this size."""
    best, fewest = 0, 0
    for side in (4, 2) if is_halved else (4, 3, 2):
        multiplications = _num_tiles_of(side, height, width, is_halved) * (side + 2) ** 2
        if not best or multiplications < fewest:
            best, fewest = side, multiplications
    return best


def _num_tiles(height: int, width: int, is_halved: bool) -> int:
    return _num_tiles_of(best_side(height, width, is_halved), height, width, is_halved)


def _num_tiles_of(side: int, height: int, width: int, is_halved: bool) -> int:
    if is_halved:
        height, width = height // 2 * 2, width // 2 * 2
    return -(-height // side) * -(-width // side)


class _Shape(ctypes.Structure):
    """The C source's `shape`."""

    _fields_ = tuple(
        (name, ctypes.c_ssize_t)
        for name in ("pictures", "height", "width", "num_in", "num_out", "side", "is_halved")
    )

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, is_halved: bool) -> "_Shape":
        return _shape_of(*x.shape, weight.shape[0], is_halved)

    @property
    def num_points(self) -> int:
        return cast(int, (self.side + 2) ** 2)


@lru_cache(maxsize=256)
def _shape_of(
    pictures: int, num_in: int, height: int, width: int, num_out: int, is_halved: bool
) -> _Shape:
    """Kept, because a network asks for the same few in every step."""
    side = best_side(height, width, is_halved)
    return _Shape(pictures, height, width, num_in, num_out, side, is_halved)


def _declare(library: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
    library.conv_work.argtypes, library.conv_work.restype = [_Shape, number], number
    library.conv_forward.argtypes = [pointer] * 2 + [_Shape] + [pointer] * 4
    library.conv_backward.argtypes = [pointer] * 4 + [_Shape] + [pointer] * 5
    library.conv_forward.restype = library.conv_backward.restype = None


def _panels(shape: _Shape, depth: int, width: int) -> Tensor:
    panel = 2 * _NUM_LANES
    return torch.empty(shape.num_points * depth * -(-width // panel) * panel)


def _check(x: Tensor, weight: Tensor, needs_input_gradient: bool) -> None:
    require(are_floats(x, weight), "conv3x3 takes float32 only")
    shape, filters = x.shape, weight.shape
    require(len(shape) == 4 and filters[2:] == (3, 3) and x.numel() > 0, "conv3x3 is for 3x3")
    fits = _fits(shape, filters, needs_input_gradient)
    require(fits, "conv3x3 is not for", shape, filters)


def _run(x: Tensor, weight: Tensor, is_halved: bool) -> tuple[Tensor, Tensor]:
    _check(x, weight, needs_input_gradient=False)
    kernel, shape = running(NAME, _declare), _Shape.of(x, weight, is_halved)
    x, filters = laid_out(x), laid_out(weight)
    y, choices = _fake(x, weight, is_halved)
    panels = _panels(shape, shape.num_in, shape.num_out)
    work = torch.empty(kernel.conv_work(shape, 0))
    kernel.conv_forward(
        x.data_ptr(),
        filters.data_ptr(),
        shape,
        panels.data_ptr(),
        work.data_ptr(),
        y.data_ptr(),
        address(choices) if is_halved else None,
    )
    return y, choices


def _fake(x: Tensor, weight: Tensor, is_halved: bool) -> tuple[Tensor, Tensor]:
    """Results, and which of four each of them was; nothing where there is no choice."""
    pictures, _, height, width = x.shape
    size = (pictures, weight.shape[0], height, width)
    if not is_halved:
        y = torch.empty(size, device=x.device, memory_format=torch.channels_last)
        return y, x.new_empty(0, dtype=torch.uint8)
    size = (*size[:2], height // 2, width // 2)
    y = torch.empty(size, device=x.device, memory_format=torch.channels_last)
    return y, torch.empty_like(y, dtype=torch.uint8)


def _run_backward(
    g: Tensor, x: Tensor, weight: Tensor, choices: Tensor, is_halved: bool, needs_input: bool
) -> tuple[Tensor, Tensor]:
    _check(x, weight, needs_input)
    kernel, shape = running(NAME, _declare), _Shape.of(x, weight, is_halved)
    g, x, filters = laid_out(g), laid_out(x), laid_out(weight)
    gx, gw = _fake_backward(g, x, filters, choices, is_halved, needs_input)
    panels = _panels(shape, shape.num_out, shape.num_in) if needs_input else None
    work = torch.empty(kernel.conv_work(shape, 1))
    total = torch.empty(shape.num_points * shape.num_in * shape.num_out)
    kernel.conv_backward(
        x.data_ptr(),
        g.data_ptr(),
        address(choices) if is_halved else None,
        filters.data_ptr(),
        shape,
        address(panels),
        work.data_ptr(),
        address(gx) if needs_input else None,
        total.data_ptr(),
        gw.data_ptr(),
    )
    return gx, gw


def _fake_backward(
    _g: Tensor, x: Tensor, weight: Tensor, _choices: Tensor, _is_halved: bool, needs_input: bool
) -> tuple[Tensor, Tensor]:
    layout = torch.channels_last
    gx = torch.empty_like(x, memory_format=layout) if needs_input else x.new_empty(0)
    return gx, torch.empty_like(weight, memory_format=layout)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, ctx.is_halved = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # the choices' would be as large as they are


def _backward(ctx: Any, g: Tensor, _none: None) -> tuple[Tensor | None, Tensor, None]:
    needs_input = ctx.needs_input_grad[0]
    gx, gw = _conv3x3_backward(g, *ctx.saved_tensors, ctx.is_halved, needs_input)
    return gx if needs_input else None, gw, None


def _flops(x: torch.Size, weight: torch.Size, *_rest: Any, **_names: Any) -> int:
    return 2 * x[0] * x[2] * x[3] * math.prod(weight)


def _flops_backward(
    _g: torch.Size, x: torch.Size, weight: torch.Size, *rest: Any, **_names: Any
) -> int:
    *_, needs_input = rest
    return _flops(x, weight) * (2 if needs_input else 1)


define("conv3x3(Tensor x, Tensor weight, bool is_halved) -> (Tensor, Tensor)", _run, _fake)
_conv3x3_backward = define(
    "conv3x3_backward(Tensor g, Tensor x, Tensor weight, Tensor choices, bool is_halved, "
    "bool needs_input) -> (Tensor, Tensor)",
    _run_backward,
    _fake_backward,
)
_conv3x3 = differentiate("conv3x3", _run, _keep, _backward)
count_as("conv3x3", _flops)
count_as("conv3x3_backward", _flops_backward)
