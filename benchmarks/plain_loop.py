"""The loop that a PyTorch tutorial teaches, and its own speed as one line of JSON."""

import json
import os
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from paceline.models.norm import StepBatchNorm2d


class PlainNorm(nn.BatchNorm2d):
    """torch's own batch norm, and torch's own addition and ReLU after it."""

    def then_relu(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        output = self(x)
        return F.relu(output if before is None else output + before, inplace=True)


def with_plain_norms(network: nn.Module) -> nn.Module:
    """The same layers with torch's own batch norm in place of ours."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, StepBatchNorm2d):
                setattr(module, name, PlainNorm(child.num_features))
    return network


def train_and_tell(
    model: nn.Module,
    loader: DataLoader[tuple[Tensor, int]],
    num_steps: int,
    warm_up_steps: int,
    label_smoothing: float,
) -> None:
    """Train with SGD; print images per second and per CPU-second, the warm-up left out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    began = cpu_began = 0.0
    num = 0
    for step, (pictures, labels) in enumerate(loader):
        if step == warm_up_steps:
            began, cpu_began, num = time.perf_counter(), _cpu_seconds(), 0
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), labels, label_smoothing=label_smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        num += len(labels)
        if step == warm_up_steps + num_steps - 1:
            break
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    print(json.dumps({"per_second": num / seconds, "per_cpu_second": num / cpu_seconds}))


def _cpu_seconds() -> float:
    """Of this process; loader processes come on top and are not counted against the peer."""
    times = os.times()
    return times.user + times.system
