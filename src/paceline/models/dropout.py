"""Dropout whose random numbers cost next to nothing on a CPU.

`F.dropout` draws one float per value from a sequential generator: a fifth of a training step on a
CPU. Here a kernel hashes the places of values (see `kernels/tokens.py`); where it cannot be
compiled, a mask is one random byte per value, drawn in bulk by numpy's SFC64. Both are seeded from
torch's CPU generator at every call: the same generator state gives the same masks, and there is no
other state to save. On other devices this is `F.dropout`.

Nothing here knows about Transformers.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.kernels import tokens as kernel

LEVELS = 256


class Mask(NamedTuple):
    """One byte for every value; a value is kept where its byte is above `threshold`."""

    noise: Tensor
    threshold: float
    scale: float

    def apply(self, values: Tensor) -> Tensor:
        return self._zero_(values * self.scale)

    def apply_(self, values: Tensor) -> Tensor:
        return self._zero_(values.mul_(self.scale))

    def _zero_(self, values: Tensor) -> Tensor:
        """Zero the dropped values in place. A threshold's backward is the one masking kernel of
        torch that is vectorised on CPUs: about 3 times faster than any with bool masks."""
        noise = self.noise.float()
        torch.ops.aten.threshold_backward.grad_input(
            values, noise, self.threshold, grad_input=values
        )
        return values


def draw(like: Tensor, rate: float) -> Mask:
    """Something that drops each value with probability `rate` exactly, and scales the others.

    A byte knows only 256 levels (0.1 would become 26/256), so the threshold itself is drawn
    from the two levels around the rate, once per mask.
    """
    num_words = -(-like.numel() // 8)
    seed = int(torch.randint(2**63 - 1, ()))
    words = np.random.SFC64(seed).random_raw(num_words + 1)
    noise = torch.from_numpy(words[1:].view(np.uint8))[: like.numel()].view(like.shape)
    level = int(rate * LEVELS + float(words[0]) / 2**64)
    return Mask(noise, level - 0.5, 1 / (1 - rate))


def dropout(values: Tensor, rate: float) -> Tensor:
    """As `F.dropout(values, rate)` in training."""
    if rate == 0.0:
        return values
    if kernel.can_take(values):
        return kernel.dropout(values, rate)
    if not _is_cheap_here(values):
        return F.dropout(values, rate)
    return _Dropout.apply(values, rate)  # type: ignore[no-any-return, no-untyped-call]


def add_dropout(values: Tensor, update: Tensor, rate: float) -> Tensor:
    """`values + F.dropout(update, rate)`, which may overwrite `update`."""
    if rate == 0.0:
        return values + update
    if kernel.can_take(update) and _is_cheap_here(values):
        return kernel.add_dropout(values, update, rate)
    if not _is_cheap_here(update):
        return values + F.dropout(update, rate)
    return _AddDropout.apply(values, update, rate)  # type: ignore[no-any-return, no-untyped-call]


def relu_dropout(values: Tensor, rate: float) -> Tensor:
    """`F.dropout(F.relu(values), rate)`, which may overwrite `values`."""
    if rate == 0.0:
        return F.relu(values)
    if not _is_cheap_here(values):
        return F.dropout(F.relu(values), rate)
    return _ReluDropout.apply(values, rate)  # type: ignore[no-any-return, no-untyped-call]


def linear_relu_dropout(inputs: Tensor, layer: nn.Linear, rate: float) -> Tensor:
    """`relu_dropout(layer(inputs), rate)`; a kernel adds the bias on its way."""
    if rate == 0.0 or not kernel.can_take(inputs) or torch.is_autocast_enabled("cpu"):
        return relu_dropout(layer(inputs), rate)
    return kernel.bias_relu_dropout(F.linear(inputs, layer.weight), layer.bias, rate)


def _is_cheap_here(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype == torch.float32


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        ctx.drawn = draw(values, rate)
        return ctx.drawn.apply(values)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.drawn.apply(gradients[0]), None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, update: Tensor, rate: float) -> Tensor:
        ctx.drawn = draw(update, rate)
        ctx.mark_dirty(update)
        return torch.add(values, ctx.drawn.apply_(update), out=update)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradients[0], ctx.drawn.apply(gradients[0]), None


class _ReluDropout(torch.autograd.Function):
    """Keeps no mask: the output is positive exactly where the gradient passes."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        ctx.scale = 1 / (1 - rate)
        draw(values, rate).apply_(values).relu_()
        ctx.mark_dirty(values)
        ctx.save_for_backward(values)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradients[0], output, 0.0)
        return gradient.mul_(ctx.scale), None
