"""Batch normalisation whose running averages do not depend on the number of processes.

Normalisation itself uses the statistics of the micro-batch at hand, whose size the recipe fixes.
The running averages, which only evaluation uses, are moved once per optimizer step by the *mean*
statistics of all the step's micro-batches, wherever in the world they ran. So one process with
four micro-batches and four processes with one each end with the same model.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from paceline.errors import UserError
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

    def next_momentum(self) -> float:
        """How far one step moves the running averages."""
        return self.momentum

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


class _Combined(nn.modules.batchnorm._BatchNorm):
    """torch's own batch norm in a user's network, with running averages as above. The names of what
    is stored stay, so its weights load into the network as the user wrote it."""

    pending: torch.Tensor
    _scratch: torch.Tensor

    def begin(self) -> None:
        assert self.running_mean is not None  # noqa: S101  (only such layers are combined)
        for name in ("pending", "_scratch"):
            zeros = self.running_mean.new_zeros(2, self.num_features)
            self.register_buffer(name, zeros, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = self._scratch[0], self._scratch[1]
        output = F.batch_norm(
            x,
            mean,
            var,
            self.weight,
            self.bias,
            training=self.training,
            momentum=1.0,
            eps=self.eps,
        )
        if self.training:
            self.pending.add_(self._scratch)
        return output

    def next_momentum(self) -> float | torch.Tensor:
        """How far the step that was just counted moves the running averages."""
        assert self.num_batches_tracked is not None  # noqa: S101
        if self.momentum is not None:
            return self.momentum
        # torch's way to ask for the plain mean of all steps. A device's count is not read.
        is_here = self.num_batches_tracked.device.type == "cpu"
        return 1.0 / (float(self.num_batches_tracked) if is_here else self.num_batches_tracked)


class CombinedBatchNorm1d(_Combined, nn.BatchNorm1d): ...


class CombinedBatchNorm2d(_Combined, nn.BatchNorm2d): ...


class CombinedBatchNorm3d(_Combined, nn.BatchNorm3d): ...


_COMBINED: dict[type[nn.Module], type[_Combined]] = {
    nn.BatchNorm1d: CombinedBatchNorm1d,
    nn.BatchNorm2d: CombinedBatchNorm2d,
    nn.BatchNorm3d: CombinedBatchNorm3d,
}


def combine_norms(model: nn.Module) -> None:
    """Let torch's batch norms average over the world; in place, so that the layers stay the same
    objects wherever else the network holds them."""
    for name, layer in model.named_modules():
        if type(layer) in _COMBINED and layer.track_running_stats:
            layer.__class__ = _COMBINED[type(layer)]
            assert isinstance(layer, _Combined)  # noqa: S101
            layer.begin()
        elif isinstance(layer, nn.modules.batchnorm._NormBase) and not isinstance(layer, _Combined):
            _refuse_own_averages(name, layer)


def _refuse_own_averages(name: str, layer: nn.modules.batchnorm._NormBase) -> None:
    if layer.track_running_stats:
        raise UserError(
            f"'{name}' is a {type(layer).__name__}, whose running averages would differ from "
            "process to process",
            "use nn.BatchNorm1d, 2d or 3d, whose averages are combined over all processes, or a "
            "norm without them: nn.GroupNorm, nn.LayerNorm, track_running_stats=False",
        )


def averaging_layers(model: nn.Module) -> list["StepBatchNorm2d | _Combined"]:
    return [m for m in model.modules() if isinstance(m, StepBatchNorm2d | _Combined)]


def norm_layers(model: nn.Module) -> list[StepBatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, StepBatchNorm2d)]


def take_statistics(model: nn.Module) -> torch.Tensor:
    """The sums of all layers in one flat tensor, ready to be added up over the world."""
    pending = [layer.pending for layer in averaging_layers(model)]
    if not pending:
        return torch.zeros(0, device=_device_of(model))
    flat = torch.cat([sums.flatten() for sums in pending])
    torch._foreach_zero_(pending)
    return flat


def _device_of(model: nn.Module) -> torch.device | None:
    return next((weight.device for weight in model.parameters()), None)


@torch.no_grad()
def absorb_statistics(model: nn.Module, mean_statistics: torch.Tensor) -> None:
    """Move every running average by the mean statistics of the step's micro-batches: all layers in
    one operation on a device, where a hundred small ones take longer than the work in them."""
    layers = averaging_layers(model)
    counts = [layer.num_batches_tracked for layer in layers if isinstance(layer, _Combined)]
    if counts:
        torch._foreach_add_([count for count in counts if count is not None], 1)
    sizes = [2 * layer.num_features for layer in layers]
    by_momentum: dict[float, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for layer, statistics in zip(layers, torch.split(mean_statistics, sizes), strict=True):
        momentum = layer.next_momentum()
        if isinstance(momentum, torch.Tensor):
            layer.running_mean.lerp_(statistics.view(2, -1)[0], momentum)  # type: ignore[union-attr]
            layer.running_var.lerp_(statistics.view(2, -1)[1], momentum)  # type: ignore[union-attr]
            continue
        averages, means = by_momentum.setdefault(momentum, ([], []))
        averages += [layer.running_mean, layer.running_var]  # type: ignore[list-item]
        means += statistics.view(2, -1).unbind(0)
    for momentum, (averages, means) in by_momentum.items():
        torch._foreach_lerp_(averages, means, momentum)
