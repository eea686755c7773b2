"""The peer: the loop that a PyTorch tutorial teaches for ImageNet, on the same files and network.

A Dataset that opens each file with Pillow, crops, flips, makes floats and normalises as torchvision
does, a DataLoader, default memory format, torch's own batch norm, SGD. Prints one JSON line: images
per second and per CPU-second.
"""

import argparse
import io
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from paceline.data import shards
from paceline.models.imagenet_resnet import ImagenetResNet
from paceline.models.norm import StepBatchNorm2d

WARM_UP_STEPS = 2
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Photos(Dataset[tuple[Tensor, int]]):
    def __init__(self, directory: Path, size: int) -> None:
        self.pictures, self.size = shards.open_pictures(directory, "train"), size

    def __len__(self) -> int:
        return 1_000_000  # endless, so that no epoch ends within a measurement

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = index % len(self.pictures)
        picture = Image.open(io.BytesIO(self.pictures.jpeg(number))).convert("RGB")
        picture = self._random_resized_crop(picture)
        if torch.rand(1) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        floats = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float() / 255
        return (floats - MEAN) / DEVIATION, int(self.pictures.labels[number])

    def _random_resized_crop(self, picture: Image.Image) -> Image.Image:
        for _ in range(10):
            area = picture.width * picture.height * float(torch.empty(1).uniform_(0.08, 1))
            ratio = math.exp(float(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= picture.width and 0 < height <= picture.height:
                left = int(torch.randint(0, picture.width - width + 1, (1,)))
                top = int(torch.randint(0, picture.height - height + 1, (1,)))
                picture = picture.crop((left, top, left + width, top + height))
                break
        return picture.resize((self.size, self.size), Image.Resampling.BILINEAR)


class PlainNorm(nn.BatchNorm2d):
    """torch's own batch norm, and torch's own addition and ReLU after it."""

    def then_relu(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        output = self(x)
        return F.relu(output if before is None else output + before, inplace=True)


def plain_network(depth: int, num_classes: int) -> nn.Module:
    """The same layers with torch's own batch norm in place of ours."""
    network = ImagenetResNet(depth, num_classes)
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, StepBatchNorm2d):
                setattr(module, name, PlainNorm(child.num_features))
    return network


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    model = plain_network(options.depth, len(shards.classes(options.data)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    photos = Photos(options.data, options.size)
    loader = DataLoader(photos, batch_size=options.batch, shuffle=True, num_workers=options.workers)
    began = cpu_began = 0.0
    for step, (pictures, labels) in enumerate(loader):
        if step == WARM_UP_STEPS:
            began, cpu_began = time.perf_counter(), _cpu_seconds()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), labels, label_smoothing=0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step == WARM_UP_STEPS + options.steps - 1:
            break
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    num = options.batch * options.steps
    print(json.dumps({"per_second": num / seconds, "per_cpu_second": num / cpu_seconds}))


def _cpu_seconds() -> float:
    """Of this process; loader processes come on top and are not counted against the peer."""
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
