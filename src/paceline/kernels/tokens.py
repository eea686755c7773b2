"""Dropout and loss of a Transformer on a CPU, each in one pass over memory.

No mask is kept: seeds and the place of a value say whether it is dropped, as often as asked.
"""

import ctypes
from typing import Any, cast

import torch
from torch import Tensor

from paceline.kernels.operation import (
    are_floats,
    define,
    differentiate,
    is_used,
    require,
    running,
)

NAME = "tokens"

_NUM_PARTS = 16
"""The C source's PARTS."""


class Chance(ctypes.Structure):
    """The C source's `chance`: where values are dropped, by their place."""

    _fields_ = (
        ("seed", ctypes.c_uint32),
        ("other_seed", ctypes.c_uint32),
        ("limit", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )

    @classmethod
    def of(cls, seeds: Tensor, rate: float) -> "Chance":
        """With a rate of 0 nothing is dropped."""
        first, second = seeds.tolist()
        return cls(first, second, round(rate * 2**32), 1 / (1 - rate))


def draw_seeds() -> Tensor:
    """The next ones of torch's CPU generator, which holds all the state there is."""
    return torch.randint(2**32, (2,))


def can_take(values: Tensor) -> bool:
    return (
        values.device.type == "cpu"
        and values.dtype is torch.float32
        and values.is_contiguous()
        and is_used(NAME)
    )


def dropout(values: Tensor, rate: float) -> Tensor:
    return cast(Tensor, _dropout(values, draw_seeds(), rate))


def add_dropout(values: Tensor, update: Tensor, rate: float) -> Tensor:
    """values + dropout(update)"""
    return cast(Tensor, _add_dropout(values, update, draw_seeds(), rate))


def bias_relu_dropout(values: Tensor, bias: Tensor, rate: float) -> Tensor:
    """dropout(relu(values + bias))"""
    return cast(Tensor, _bias_relu_dropout(values, bias, draw_seeds(), rate))


def smoothed_rows_(
    logits: Tensor, targets: Tensor, smoothing: float, wants_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Losses of the targets and of all classes, summed; `logits` become their gradient.

    It brings its gradient along, so none is registered: whoever calls it is an autograd function.
    """
    nll, all_classes = _smoothed_rows(logits, targets, smoothing, wants_gradient)
    return nll.sum(), all_classes.sum()


def _declare(library: ctypes.CDLL) -> None:
    pointer, number, real = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float
    library.drop.argtypes = [pointer, number, Chance, pointer]
    library.add_drop.argtypes = [pointer, pointer, number, Chance, pointer]
    library.relu_drop.argtypes = [pointer, pointer, number, number, Chance, pointer]
    library.relu_drop_backward.argtypes = [*[pointer] * 2, number, number, real, *[pointer] * 3]
    library.smoothed_rows.argtypes = [*[pointer] * 2, *[number] * 2, real, number, *[pointer] * 2]
    for function in (library.drop, library.add_drop, library.relu_drop):
        function.restype = None
    library.relu_drop_backward.restype = library.smoothed_rows.restype = None


def _check(rate: float, *tensors: Tensor) -> None:
    require(are_floats(*tensors) and 0 <= rate < 1, "dropout takes float32 and a rate below 1")


def _like(values: Tensor, *_rest: Any) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _run_dropout(values: Tensor, seeds: Tensor, rate: float) -> Tensor:
    _check(rate, values)
    values, out = values.contiguous(), _like(values)
    kernel = running(NAME, _declare)
    kernel.drop(values.data_ptr(), values.numel(), Chance.of(seeds, rate), out.data_ptr())
    return out


def _keep_seeds(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *_, seeds, ctx.rate = inputs
    ctx.save_for_backward(seeds)


def _backward_of_dropout(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
    (seeds,) = ctx.saved_tensors
    return _dropout(g, seeds, ctx.rate), None, None


def _run_add_dropout(values: Tensor, update: Tensor, seeds: Tensor, rate: float) -> Tensor:
    _check(rate, values, update)
    require(values.shape == update.shape, "add_dropout adds what has one shape")
    values, update, out = values.contiguous(), update.contiguous(), _like(update)
    running(NAME, _declare).add_drop(
        values.data_ptr(),
        update.data_ptr(),
        update.numel(),
        Chance.of(seeds, rate),
        out.data_ptr(),
    )
    return out


def _backward_of_add_dropout(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
    (seeds,) = ctx.saved_tensors
    return g, _dropout(g, seeds, ctx.rate), None, None


def _run_bias_relu_dropout(values: Tensor, bias: Tensor, seeds: Tensor, rate: float) -> Tensor:
    _check(rate, values, bias)
    width = len(bias)
    require(values.shape[-1] == width, "bias_relu_dropout wants a bias for every column")
    values, bias, out = values.contiguous(), bias.contiguous(), _like(values)
    running(NAME, _declare).relu_drop(
        values.data_ptr(),
        bias.data_ptr(),
        values.numel() // width,
        width,
        Chance.of(seeds, rate),
        out.data_ptr(),
    )
    return out


def _run_backward(g: Tensor, result: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    _check(rate, g, result)
    require(g.shape == result.shape, "bias_relu_dropout has a gradient like its result")
    g, result, width = g.contiguous(), result.contiguous(), result.shape[-1]
    to_values, to_bias = _fake_backward(g, result, rate)
    parts = torch.empty(_NUM_PARTS, width)
    running(NAME, _declare).relu_drop_backward(
        g.data_ptr(),
        result.data_ptr(),
        result.numel() // width,
        width,
        1 / (1 - rate),
        to_values.data_ptr(),
        parts.data_ptr(),
        to_bias.data_ptr(),
    )
    return to_values, to_bias


def _fake_backward(_g: Tensor, result: Tensor, _rate: float) -> tuple[Tensor, Tensor]:
    return _like(result), result.new_empty(result.shape[-1])


def _keep_result(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *_, ctx.rate = inputs
    ctx.save_for_backward(output)  # positive exactly where the gradient passes


def _backward_of_bias_relu(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
    (result,) = ctx.saved_tensors
    to_values, to_bias = _bias_relu_dropout_backward(g, result, ctx.rate)
    return to_values, to_bias, None, None


def _run_rows(logits: Tensor, targets: Tensor, smoothing: float, wants_gradient: bool) -> Tensor:
    is_right = are_floats(logits) and logits.dim() == 2 and logits.is_contiguous()
    require(is_right and targets.dtype is torch.int64, "smoothed_rows takes float32 and int64")
    least, most = torch.aminmax(targets) if len(targets) else (0, -1)
    is_right = len(targets) == len(logits) and int(least) >= 0 and int(most) < logits.shape[1]
    require(is_right, "smoothed_rows wants one of the columns as the target of every row")
    losses, targets = torch.empty(2, len(logits)), targets.contiguous()
    running(NAME, _declare).smoothed_rows(
        logits.data_ptr(),
        targets.data_ptr(),
        *logits.shape,
        smoothing,
        wants_gradient,
        *(row.data_ptr() for row in losses),
    )
    torch.autograd.graph.increment_version(logits)
    return losses


def _fake_rows(logits: Tensor, *_rest: Any) -> Tensor:
    return logits.new_empty(2, logits.shape[0])


def _like_update(_values: Tensor, update: Tensor, *_rest: Any) -> Tensor:
    return _like(update)


define("dropout(Tensor values, Tensor seeds, float rate) -> Tensor", _run_dropout, _like)
define(
    "add_dropout(Tensor values, Tensor update, Tensor seeds, float rate) -> Tensor",
    _run_add_dropout,
    _like_update,
)
define(
    "bias_relu_dropout(Tensor values, Tensor bias, Tensor seeds, float rate) -> Tensor",
    _run_bias_relu_dropout,
    _like,
)
_bias_relu_dropout_backward = define(
    "bias_relu_dropout_backward(Tensor g, Tensor result, float rate) -> (Tensor, Tensor)",
    _run_backward,
    _fake_backward,
)
_smoothed_rows = define(
    "smoothed_rows(Tensor(a!) logits, Tensor targets, float smoothing, bool wants_gradient) "
    "-> Tensor",
    _run_rows,
    _fake_rows,
)
_dropout = differentiate("dropout", _run_dropout, _keep_seeds, _backward_of_dropout)
_add_dropout = differentiate("add_dropout", _run_add_dropout, _keep_seeds, _backward_of_add_dropout)
_bias_relu_dropout = differentiate(
    "bias_relu_dropout", _run_bias_relu_dropout, _keep_result, _backward_of_bias_relu
)
