"""The peer: the loop that a PyTorch tutorial teaches, on the same pictures and the same network.

A Dataset that crops, flips and normalises picture by picture, a DataLoader, default memory format,
torch's own batch norm, SGD. Prints one JSON line: images per second and per CPU-second.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from paceline.data import cifar10
from paceline.models.norm import StepBatchNorm2d
from paceline.models.resnet import CifarResNet

WARM_UP_STEPS = 3


class Pictures(Dataset[tuple[Tensor, int]]):
    def __init__(self, directory: Path) -> None:
        self.split = cifar10.open_split(directory, "train")
        self.mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
        self.std = torch.tensor([0.247, 0.243, 0.262]).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.split.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = torch.tensor(self.split.images[index]).float() / 255
        picture = F.pad(picture, (4, 4, 4, 4))
        top, left = (int(torch.randint(0, 9, (1,))) for _ in range(2))
        picture = picture[:, top : top + 32, left : left + 32]
        if torch.rand(1) < 0.5:
            picture = picture.flip(2)
        return (picture - self.mean) / self.std, int(self.split.labels[index])


class PlainNorm(nn.BatchNorm2d):
    """torch's own batch norm, and torch's own addition and ReLU after it."""

    def then_relu(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        output = self(x)
        return F.relu(output if before is None else output + before, inplace=True)


def plain_network(depth: int) -> nn.Module:
    """The same layers with torch's own batch norm in place of ours."""
    network = CifarResNet(depth)
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, StepBatchNorm2d):
                setattr(module, name, PlainNorm(child.num_features))
    return network


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=44)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    model = plain_network(options.depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(
        Pictures(options.data), batch_size=128, shuffle=True, num_workers=options.workers
    )
    began = cpu_began = 0.0
    for step, (pictures, labels) in enumerate(loader):
        if step == WARM_UP_STEPS:
            began, cpu_began = time.perf_counter(), _cpu_seconds()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step == WARM_UP_STEPS + options.steps - 1:
            break
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    num = 128 * options.steps
    print(json.dumps({"per_second": num / seconds, "per_cpu_second": num / cpu_seconds}))


def _cpu_seconds() -> float:
    """Of this process; loader processes come on top and are not counted against the peer."""
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
