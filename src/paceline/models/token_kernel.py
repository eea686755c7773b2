"""Dropout and loss of a Transformer on a CPU, each in one pass over memory.

No mask is kept: a `Chance` says of every place whether its value is dropped, as often as asked.
"""

import ctypes
from functools import cache
from typing import cast

import torch
from torch import Tensor

from paceline.models.compiled import is_off, library

_NUM_PARTS = 16
"""The C source's PARTS."""


class Chance(ctypes.Structure):
    """Where values are dropped: a function of the seeds and of the place."""

    _fields_ = (
        ("seed", ctypes.c_uint32),
        ("other_seed", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )

    @classmethod
    def draw(cls, rate: float) -> "Chance":
        """The next one of torch's CPU generator, which holds all the state there is."""
        seeds = cast("list[int]", torch.randint(2**32, (2,)).tolist())
        return cls(seeds[0], seeds[1], round(rate * 2**32), 1 / (1 - rate))

    @classmethod
    def never(cls) -> "Chance":
        """Nothing is dropped."""
        return cls(0, 0, 0, 1.0)


def is_there() -> bool:
    return not is_off() and _kernel() is not None


def can_take(values: Tensor) -> bool:
    return (
        values.device.type == "cpu"
        and values.dtype is torch.float32
        and values.is_contiguous()
        and is_there()
    )


@cache
def _kernel() -> ctypes.CDLL | None:
    found = library("token_kernel")
    if found is not None:
        pointer, number, real = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float
        found.drop.argtypes = [pointer, number, Chance, pointer]
        found.add_drop.argtypes = [pointer, pointer, number, Chance, pointer]
        found.relu_drop.argtypes = [pointer, pointer, number, number, Chance]
        found.relu_drop_backward.argtypes = [*[pointer] * 2, number, number, real, *[pointer] * 3]
        found.smoothed_rows.argtypes = [
            pointer,
            pointer,
            number,
            number,
            real,
            number,
            *[pointer] * 2,
        ]
        for function in (found.drop, found.add_drop, found.relu_drop):
            function.restype = None
        found.relu_drop_backward.restype = found.smoothed_rows.restype = None
    return found


def _loaded() -> ctypes.CDLL:
    kernel = _kernel()
    assert kernel is not None  # noqa: S101  (`is_there` or `can_take` was asked)
    return kernel


def drop(values: Tensor, chance: Chance, out: Tensor | None = None) -> Tensor:
    """Dropout, into a new tensor or into `out`, which may be `values`."""
    values = values.contiguous()
    out = torch.empty_like(values) if out is None else out
    _loaded().drop(values.data_ptr(), values.numel(), chance, out.data_ptr())
    return out


def add_drop_(values: Tensor, update: Tensor, chance: Chance) -> Tensor:
    """`update` becomes values + dropout(update)."""
    values = values.contiguous()
    _loaded().add_drop(
        values.data_ptr(), update.data_ptr(), update.numel(), chance, update.data_ptr()
    )
    return update


def relu_drop_(values: Tensor, bias: Tensor, chance: Chance) -> Tensor:
    """`values` become dropout(relu(values + bias))."""
    width = len(bias)
    _loaded().relu_drop(values.data_ptr(), bias.data_ptr(), values.numel() // width, width, chance)
    return values


def relu_drop_gradients(gradient: Tensor, result: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Of the values and of the bias."""
    gradient, width = gradient.contiguous(), result.shape[-1]
    to_values, parts = torch.empty_like(result), torch.empty(_NUM_PARTS, width)
    to_bias = torch.empty(width)
    _loaded().relu_drop_backward(
        gradient.data_ptr(),
        result.data_ptr(),
        result.numel() // width,
        width,
        scale,
        to_values.data_ptr(),
        parts.data_ptr(),
        to_bias.data_ptr(),
    )
    return to_values, to_bias


def smoothed_rows_(
    logits: Tensor, targets: Tensor, smoothing: float, wants_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Losses of the targets and of all classes, summed; `logits` become their gradient."""
    nll, all_classes = torch.empty(2, len(logits))
    targets = targets.contiguous()
    _loaded().smoothed_rows(
        logits.data_ptr(),
        targets.data_ptr(),
        *logits.shape,
        smoothing,
        wants_gradient,
        nll.data_ptr(),
        all_classes.data_ptr(),
    )
    return nll.sum(), all_classes.sum()
