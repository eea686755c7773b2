"""3x3 convolutions, on a CPU with a quarter to a half of the multiplications (Winograd).

torch's convolutions on CPUs multiply every pixel with every tap. The C source says how it is done
here. Anything the kernel is not made for, and any other device, goes to torch.
"""

import ctypes
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from paceline.models.compiled import LONGEST_ROW, address, is_usual, laid_out, library

_NUM_LANES = 16
"""The largest of the C source's LANES, so that results do not depend on it."""

_MIN_CHANNELS = 24
"""With fewer, turning tiles into points and back costs more than multiplying saves."""

_MIN_TILES = 96
"""The filters are transformed once a call; with fewer tiles that is the larger part of the work."""


class Conv3x3(nn.Conv2d):
    """nn.Conv2d of 3x3 that keeps the size of its input (or halves it), without bias."""

    def __init__(self, num_in: int, num_out: int, stride: int = 1) -> None:
        super().__init__(num_in, num_out, kernel_size=3, stride=stride, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._has_kernel(x, is_halved=False):
            return _winograd(x, self.weight, is_halved=False)
        return super().forward(x)

    def then_max_pool(self, x: torch.Tensor) -> torch.Tensor:
        """The largest of every 2x2 results, in one operation where there is a kernel for it."""
        if self._has_kernel(x, is_halved=True):
            return _winograd(x, self.weight, is_halved=True)
        return F.max_pool2d(super().forward(x), 2)

    def _has_kernel(self, x: torch.Tensor, is_halved: bool) -> bool:
        is_plain = self.stride == (1, 1) and self.weight.dtype is torch.float32
        return is_plain and can_take(_Shape.of(x, len(self.weight), is_halved), x)


class _Shape(ctypes.Structure):
    """The C source's `shape`."""

    _fields_ = tuple(
        (name, ctypes.c_ssize_t)
        for name in ("pictures", "height", "width", "num_in", "num_out", "side", "is_halved")
    )

    @classmethod
    def of(cls, x: torch.Tensor, num_out: int, is_halved: bool) -> "_Shape":
        pictures, num_in, height, width = x.shape
        side = _best_side(height, width, is_halved)
        return cls(pictures, height, width, num_in, num_out, side, is_halved)

    @property
    def num_points(self) -> int:
        return cast(int, (self.side + 2) ** 2)


def can_take(shape: _Shape, x: torch.Tensor) -> bool:
    num_in, num_out = shape.num_in, shape.num_out
    num_tiles = shape.pictures * _num_tiles(shape.height, shape.width, shape.side, shape.is_halved)
    return (
        is_usual(x)
        and min(num_in, num_out) >= _MIN_CHANNELS
        and num_out <= LONGEST_ROW
        and num_out % _NUM_LANES == 0
        and num_in % (_NUM_LANES if x.requires_grad else _NUM_LANES // 2) == 0
        and min(shape.height, shape.width) >= 2
        and num_tiles >= _MIN_TILES
        and not torch.is_autocast_enabled("cpu")
        and _kernel() is not None
    )


@cache
def _kernel() -> ctypes.CDLL | None:
    found = library("conv_kernel")
    if found is not None:
        pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
        found.conv_work.argtypes, found.conv_work.restype = [_Shape, number], number
        found.conv_forward.argtypes = [pointer] * 2 + [_Shape] + [pointer] * 4
        found.conv_backward.argtypes = [pointer] * 4 + [_Shape] + [pointer] * 5
        found.conv_forward.restype = found.conv_backward.restype = None
    return found


@cache
def _best_side(height: int, width: int, is_halved: bool) -> int:
    """The tile that leaves the fewest multiplications for a picture of this size."""

    def multiplications(side: int) -> int:
        return _num_tiles(height, width, side, is_halved) * (side + 2) ** 2

    return min((4, 2) if is_halved else (4, 3, 2), key=multiplications)


def _num_tiles(height: int, width: int, side: int, is_halved: bool) -> int:
    if is_halved:
        height, width = height // 2 * 2, width // 2 * 2
    return -(-height // side) * -(-width // side)


def _winograd(x: torch.Tensor, weight: torch.Tensor, is_halved: bool) -> torch.Tensor:
    return cast(torch.Tensor, _Winograd.apply(x, weight, is_halved))  # type: ignore[no-untyped-call]


def _panels(shape: _Shape, depth: int, width: int) -> torch.Tensor:
    panel = 2 * _NUM_LANES
    return torch.empty(shape.num_points * depth * -(-width // panel) * panel)


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, is_halved: bool) -> torch.Tensor:
        kernel, shape = _kernel(), _Shape.of(x, len(weight), is_halved)
        assert kernel is not None  # noqa: S101  (`can_take` was asked)
        divisor = 2 if is_halved else 1
        size = (len(x), len(weight), shape.height // divisor, shape.width // divisor)
        y = torch.empty(size, memory_format=torch.channels_last)
        choices = torch.empty_like(y, dtype=torch.uint8) if is_halved else None
        panels = _panels(shape, shape.num_in, shape.num_out)
        work = torch.empty(kernel.conv_work(shape, 0))
        filters = laid_out(weight)
        kernel.conv_forward(
            x.data_ptr(),
            filters.data_ptr(),
            shape,
            panels.data_ptr(),
            work.data_ptr(),
            y.data_ptr(),
            address(choices),
        )
        ctx.save_for_backward(x, filters, choices)
        ctx.shape = shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, None]:
        kernel, shape = _kernel(), ctx.shape
        assert kernel is not None  # noqa: S101  (forward has used it)
        x, filters, choices = ctx.saved_tensors
        g = laid_out(g)
        gx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        gw = torch.empty_like(filters, memory_format=torch.channels_last)
        panels = _panels(shape, shape.num_out, shape.num_in) if gx is not None else None
        work = torch.empty(kernel.conv_work(shape, 1))
        total = torch.empty(shape.num_points * shape.num_in * shape.num_out)
        kernel.conv_backward(
            x.data_ptr(),
            g.data_ptr(),
            address(choices),
            filters.data_ptr(),
            shape,
            address(panels),
            work.data_ptr(),
            address(gx),
            total.data_ptr(),
            gw.data_ptr(),
        )
        return gx, gw, None
