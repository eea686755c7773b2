"""From settings to an optimizer: its kind, its groups of weights, its rate."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from paceline.settings import OptimizerSettings
from paceline.train.optimizer.muon import Muon

Groups = list[dict[str, Any]]


def build_optimizer(settings: OptimizerSettings, network: nn.Module) -> torch.optim.Optimizer:
    devices = {p.device.type for p in network.parameters()}
    return optimizer_of(settings, parameter_groups(settings, network), devices)


def optimizer_of(
    settings: OptimizerSettings, groups: Groups, devices: set[str]
) -> torch.optim.Optimizer:
    if settings.kind == "muon":
        return Muon(groups, lr=1.0, momentum=settings.momentum)
    if settings.kind == "sgd":
        return torch.optim.SGD(
            groups,
            lr=1.0,
            momentum=settings.momentum,
            nesterov=settings.nesterov and settings.momentum > 0,
            fused=True if devices == {"cuda"} else None,
        )
    kind = torch.optim.Adam if settings.kind == "adam" else torch.optim.AdamW
    betas = (settings.beta1, settings.beta2)
    # One pass over the weights instead of ten; and fused updates look at fp16's overflows on the
    # device, where others would have the host wait for them in every step.
    is_fused = True if devices in ({"cpu"}, {"cuda"}) else None
    return kind(groups, lr=1.0, betas=betas, eps=settings.epsilon, fused=is_fused)


def group_kinds(settings: OptimizerSettings) -> Groups:
    """What sets the groups of weights apart; `group_of` says which is whose.

    Weight decay acts on matrices and kernels only: decaying norms and biases hurts.
    """
    decayed = {"weight_decay": settings.weight_decay}
    vectors = {"weight_decay": 0.0, "rate_multiple": settings.bias_rate}
    if settings.kind != "muon":
        return [{**decayed, "rate_multiple": 1.0}, vectors]
    return [
        {**decayed, "rate_multiple": 1.0, "is_orthogonal": True},
        {**decayed, "rate_multiple": settings.matrix_rate},
        vectors,
    ]


def group_of(settings: OptimizerSettings, num_dimensions: int) -> int:
    """The number of the group of a weight with so many dimensions."""
    if num_dimensions <= 1:
        return len(group_kinds(settings)) - 1
    return 1 if settings.kind == "muon" and num_dimensions == 2 else 0


def parameter_groups(settings: OptimizerSettings, network: nn.Module) -> Groups:
    trained = [p for p in network.parameters() if p.requires_grad]
    return with_weights(settings, trained, [group_of(settings, p.ndim) for p in trained])


def with_weights(
    settings: OptimizerSettings, weights: Sequence[torch.Tensor], groups: Sequence[int]
) -> Groups:
    """The groups with their weights, of which each has the number of its group beside it."""
    pairs = list(zip(weights, groups, strict=True))
    return [
        {"params": [weight for weight, number in pairs if number == group], **kind}
        for group, kind in enumerate(group_kinds(settings))
    ]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_multiple"]
