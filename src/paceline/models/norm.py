"""Batch normalisation whose running averages do not depend on the number of processes.

Normalisation itself uses the statistics of the micro-batch at hand, whose size the recipe fixes.
The running averages, which only evaluation uses, are moved once per optimizer step by the *mean*
statistics of all the step's micro-batches, wherever in the world they ran. So one process with
four micro-batches and four processes with one each end with the same model.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from paceline.kernels import norm as kernel


class StepBatchNorm2d(nn.Module):
    """Batch norm that sums statistics during a step and leaves the running averages alone.

    The step collects `pending` from every layer, averages it over the world, and hands it back
    through `absorb_statistics`.
    """

    kernels: ClassVar = (kernel.NAME,)
    running_mean: torch.Tensor
    running_var: torch.Tensor
    pending: torch.Tensor
    _scratch: torch.Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("pending", torch.zeros(2, num_features), persistent=False)
        self.register_buffer("_scratch", torch.zeros(2, num_features), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        # With momentum 1 the kernel writes this micro-batch's own mean and variance, for free.
        output = F.batch_norm(
            x,
            self._scratch[0],
            self._scratch[1],
            self.weight,
            self.bias,
            training=True,
            momentum=1.0,
            eps=self.eps,
        )
        self.pending.add_(self._scratch)
        return output

    def then_relu(self, x: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
        """relu(norm(x) + before), in one operation where there is a kernel for it."""
        return self._then(F.relu, x, before)

    def then_silu(self, x: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
        """silu(norm(x) + before), in one operation where there is a kernel for it."""
        return self._then(F.silu, x, before)

    def _then(
        self,
        activation: Callable[..., torch.Tensor],
        x: torch.Tensor,
        before: torch.Tensor | None,
    ) -> torch.Tensor:
        if self.training and kernel.can_take(x):
            is_smooth = activation is F.silu
            output, statistics = kernel.norm_activate(
                x, before, self.weight, self.bias, self.eps, is_smooth
            )
            self.pending.add_(statistics)
            return output
        output = self(x)
        return activation(output if before is None else output + before, inplace=True)


def norm_layers(model: nn.Module) -> list[StepBatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, StepBatchNorm2d)]


def take_statistics(model: nn.Module) -> torch.Tensor:
    """The sums of all layers in one flat tensor, ready to be added up over the world."""
    layers = norm_layers(model)
    flat = torch.cat([layer.pending.flatten() for layer in layers]) if layers else torch.zeros(0)
    for layer in layers:
        layer.pending.zero_()
    return flat


@torch.no_grad()
def absorb_statistics(model: nn.Module, mean_statistics: torch.Tensor) -> None:
    """Move every running average by the mean statistics of the step's micro-batches."""
    for layer, statistics in zip(norm_layers(model), _split(model, mean_statistics), strict=True):
        layer.running_mean.lerp_(statistics[0], layer.momentum)
        layer.running_var.lerp_(statistics[1], layer.momentum)


def _split(model: nn.Module, flat: torch.Tensor) -> Iterator[torch.Tensor]:
    offset = 0
    for layer in norm_layers(model):
        size = 2 * layer.num_features
        yield flat[offset : offset + size].view(2, -1)
        offset += size
