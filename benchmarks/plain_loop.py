"""The loop that a PyTorch tutorial teaches, and its own speed as one line of JSON."""

import argparse
import json
import os
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Place:
    """Where a plain loop trains, and in which precision: with autocast, as the tutorials do."""

    device: torch.device
    precision: str = "fp32"

    def autocast(self) -> AbstractContextManager[object]:
        kind = torch.float16 if self.precision == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=kind, enabled=self.precision != "fp32")

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])


def place_of(options: argparse.Namespace) -> Place:
    return Place(torch.device(options.device), options.precision)


def train_and_tell(
    model: nn.Module,
    loader: DataLoader[tuple[Tensor, int]],
    num_steps: int,
    warm_up_steps: int,
    label_smoothing: float,
    place: Place,
) -> None:
    """Train with SGD; print images per second and per CPU-second, the warm-up left out."""
    model = model.to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(place.device.type, enabled=place.precision == "fp16")
    began = cpu_began = 0.0
    num = 0
    for step, batch in enumerate(loader):
        if step == warm_up_steps:
            place.wait()
            began, cpu_began, num = time.perf_counter(), _cpu_seconds(), 0
        pictures, labels = (each.to(place.device, non_blocking=True) for each in batch)
        optimizer.zero_grad()
        with place.autocast():
            loss = F.cross_entropy(model(pictures), labels, label_smoothing=label_smoothing)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        num += len(labels)
        if step == warm_up_steps + num_steps - 1:
            break
    place.wait()
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    print(json.dumps({"per_second": num / seconds, "per_cpu_second": num / cpu_seconds}))


def _cpu_seconds() -> float:
    """Of this process; loader processes come on top and are not counted against the peer."""
    times = os.times()
    return times.user + times.system
