"""Batch normalisation whose running averages do not depend on the number of processes.

Normalisation itself uses the statistics of the micro-batch at hand, whose size the recipe fixes.
The running averages, which only evaluation uses, are moved once per optimizer step by the *mean*
statistics of all the step's micro-batches, wherever in the world they ran. So one process with
four micro-batches and four processes with one each end with the same model.

On a device the sums of all layers are one buffer (`StepStatistics`): a hundred small operations
take longer there than the work in them.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from paceline.errors import UserError
from paceline.kernels import norm as kernel


class _Summing(nn.Module):
    """What a layer has while a step lasts."""

    pending: torch.Tensor
    """Means and variances, summed over the step's micro-batches."""
    _scratch: torch.Tensor
    """Those of the micro-batch at hand, written by torch's operation."""
    is_side_by_side = False
    """Whether somebody adds up `_scratch` of all layers at once, after the micro-batch."""
    is_filled = False
    """Whether `_scratch` is waiting for that."""

    def _begin_pass(self) -> None:
        if self.is_filled:  # a second time in one micro-batch
            self.pending.add_(self._scratch)

    def _end_pass(self) -> None:
        if self.is_side_by_side:
            self.is_filled = True
        else:
            self.pending.add_(self._scratch)


class StepBatchNorm2d(_Summing):
    """Batch norm that sums statistics during a step and leaves the running averages alone.

    The step collects `pending` from every layer, averages it over the world, and hands it back
    through `absorb_statistics`.
    """

    kernels: ClassVar = (kernel.NAME,)
    running_mean: torch.Tensor
    running_var: torch.Tensor

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
        self._begin_pass()
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
        self._end_pass()
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


class _Combined(_Summing, nn.modules.batchnorm._BatchNorm):
    """torch's own batch norm in a user's network, with running averages as above. The names of what
    is stored stay, so its weights load into the network as the user wrote it."""

    def begin(self) -> None:
        assert self.running_mean is not None  # noqa: S101  (only such layers are combined)
        for name in ("pending", "_scratch"):
            zeros = self.running_mean.new_zeros(2, self.num_features)
            self.register_buffer(name, zeros, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        mean, var = self.running_mean, self.running_var
        if self.training:
            self._begin_pass()
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
            self._end_pass()
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


class StepStatistics:
    """The sums of all layers of a network; made once, when the network is on its device."""

    def __init__(self, model: nn.Module, side_by_side: bool = False) -> None:
        """`side_by_side`: in one buffer, as is good for a device."""
        self._layers = averaging_layers(model)
        self._sizes = [2 * layer.num_features for layer in self._layers]
        self._device = _device_of(model)
        self._sums: torch.Tensor | None = None
        self._batch: torch.Tensor | None = None
        types = {layer.pending.dtype for layer in self._layers}
        if side_by_side and len(types) == 1:
            self._lay_side_by_side(types.pop())

    def _lay_side_by_side(self, dtype: torch.dtype) -> None:
        self._sums, self._batch = (
            torch.zeros(sum(self._sizes), dtype=dtype, device=self._device) for _ in range(2)
        )
        parts = (torch.split(each, self._sizes) for each in (self._sums, self._batch))
        for layer, sums, batch in zip(self._layers, *parts, strict=True):
            layer.pending, layer._scratch = sums.view(2, -1), batch.view(2, -1)
            layer.is_side_by_side = True

    def end_micro_batch(self) -> None:
        """After its backward, which may look at what the forward pass wrote."""
        if self._sums is None or self._batch is None:
            return
        self._sums.add_(self._batch)
        self._batch.zero_()  # of a layer that the next pass leaves out nothing must be added
        for layer in self._layers:
            layer.is_filled = False

    def take(self) -> torch.Tensor:
        """In one flat tensor, ready to be added up over the world."""
        if self._sums is not None:
            self.end_micro_batch()
            taken = self._sums.clone()
            self._sums.zero_()
            return taken
        pending = [layer.pending for layer in self._layers]
        if not pending:
            return torch.zeros(0, device=self._device)
        flat = torch.cat([sums.flatten() for sums in pending])
        torch._foreach_zero_(pending)
        return flat

    @torch.no_grad()
    def absorb(self, mean_statistics: torch.Tensor) -> None:
        """Move every running average by the mean statistics of the step's micro-batches."""
        counts = [each.num_batches_tracked for each in self._layers if isinstance(each, _Combined)]
        if counts:
            torch._foreach_add_([count for count in counts if count is not None], 1)
        by_momentum: dict[float, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        parts = torch.split(mean_statistics, self._sizes)
        for layer, statistics in zip(self._layers, parts, strict=True):
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


def take_statistics(model: nn.Module) -> torch.Tensor:
    return StepStatistics(model).take()


def absorb_statistics(model: nn.Module, mean_statistics: torch.Tensor) -> None:
    StepStatistics(model).absorb(mean_statistics)


def _device_of(model: nn.Module) -> torch.device | None:
    return next((weight.device for weight in model.parameters()), None)
