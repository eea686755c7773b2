"""From settings to an optimizer: its kind, its groups of weights, its rate."""

from typing import Any

import torch
from torch import nn

from paceline.settings import OptimizerSettings
from paceline.train.optimizer.muon import Muon


def build_optimizer(settings: OptimizerSettings, network: nn.Module) -> torch.optim.Optimizer:
    groups = parameter_groups(settings, network)
    if settings.kind == "muon":
        return Muon(groups, lr=1.0, momentum=settings.momentum)
    devices = {p.device.type for p in network.parameters()}
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


def parameter_groups(settings: OptimizerSettings, network: nn.Module) -> list[dict[str, Any]]:
    """Weight decay acts on matrices and kernels only: decaying norms and biases hurts."""
    trained = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim > 1]
    vectors = [p for p in trained if p.ndim <= 1]
    decayed = {"weight_decay": settings.weight_decay}
    groups: list[dict[str, Any]] = [
        {"params": vectors, "weight_decay": 0.0, "rate_multiple": settings.bias_rate}
    ]
    if settings.kind != "muon":
        return [{"params": matrices, **decayed, "rate_multiple": 1.0}, *groups]
    kernels = [p for p in matrices if p.ndim > 2]
    others = [p for p in matrices if p.ndim == 2]
    return [
        {"params": kernels, **decayed, "rate_multiple": 1.0, "is_orthogonal": True},
        {"params": others, **decayed, "rate_multiple": settings.matrix_rate},
        *groups,
    ]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_multiple"]
