"""Muon (Jordan et al. 2024) for convolution kernels: a step goes equally far in every direction.

The momentum of a kernel, seen as a matrix with a row per filter, is replaced by the nearest matrix
whose rows are orthogonal, found by a few rounds of a polynomial (Newton-Schulz). All else in the
network is moved by plain SGD with Nesterov's momentum.

Why not torch.optim.Muon: it refuses kernels, and it multiplies in bfloat16, which processors
without instructions for it do slower than float32.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Chosen by the authors so that small singular values grow fastest: after three rounds most of
# them lie near 1, which serves as well as exactly 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_NUM_ROUNDS = 3


class Muon(torch.optim.Optimizer):
    """Groups with `is_orthogonal` hold kernels, the others anything."""

    _step_supports_amp_scaling = True
    """To torch's gradient scaler, which then leaves looking for overflows to the step, where no
    host has to wait for the answer. It sets `found_inf`, and `grad_scale` unless it has divided."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "is_orthogonal": False})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        scale, overflow = (getattr(self, name, None) for name in ("grad_scale", "found_inf"))
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if scale is not None:
                    weight.grad.div_(scale)
                if overflow is None:
                    self._move(weight, weight.grad, group)
                else:
                    self._move_unless(overflow, weight, group)

    def _move_unless(self, overflow: Tensor, weight: Tensor, group: dict[str, Any]) -> None:
        """A step whose gradients are not finite is none; only the device knows whether they are."""
        before, state = weight.clone(), self.state[weight]
        momentum = state.get("momentum_buffer", torch.zeros_like(weight)).clone()
        assert weight.grad is not None  # noqa: S101
        self._move(weight, weight.grad, group)
        weight.copy_(torch.where(overflow > 0, before, weight))
        buffer = state["momentum_buffer"]
        buffer.copy_(torch.where(overflow > 0, momentum, buffer))

    def _move(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[weight], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        if group["weight_decay"] and not group["is_orthogonal"]:
            gradient = gradient.add(weight, alpha=group["weight_decay"])
        buffer = state["momentum_buffer"].mul_(momentum).add_(gradient)
        direction = gradient.add(buffer, alpha=momentum)
        if group["is_orthogonal"]:
            # A norm follows each kernel, so its own length says nothing; a fixed one keeps the
            # angle of a step the same all along, which is what weight decay would do in the end.
            weight.mul_(len(weight) ** 0.5 / weight.norm())
            direction = orthogonalised(direction)
        weight.add_(direction, alpha=-group["lr"])


def orthogonalised(kernel: Tensor) -> Tensor:
    """A tensor of the same shape whose rows, one per filter, are nearly orthonormal.

    Every round multiplies the matrix by a polynomial of its Gram matrix. These are small, square
    and commute, so they are multiplied with one another first, and the matrix only once: half the
    work for kernels of 3x3.
    """
    matrix = kernel.flatten(1)
    is_tall = len(matrix) > matrix.shape[1]
    short: Tensor = matrix.T if is_tall else matrix
    short = short / (short.norm() + 1e-7)
    gram = short @ short.T
    factor = _polynomial(gram)
    product = factor
    for _ in range(_NUM_ROUNDS - 1):
        gram = gram @ (factor @ factor)
        factor = _polynomial(gram)
        product = factor @ product
    short = product @ short
    return (short.T if is_tall else short).reshape(kernel.shape)


def _polynomial(gram: Tensor) -> Tensor:
    first, third, fifth = _QUINTIC
    factor = torch.addmm(gram, gram, gram, beta=third, alpha=fifth)
    factor.diagonal().add_(first)
    return factor
