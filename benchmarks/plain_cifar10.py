"""The peer: the loop that a PyTorch tutorial teaches, on the same pictures and the same network.

A Dataset that crops, flips and normalises picture by picture, a DataLoader, default memory format,
torch's own batch norm, SGD. Prints one JSON line: images per second and per CPU-second.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.plain_loop import add_place, place_of, train_and_tell, with_plain_norms
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10.resnet import CifarResNet

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=44)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128)
    add_place(parser)
    options = parser.parse_args()
    place = place_of(options)
    loader = DataLoader(
        Pictures(options.data),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
        pin_memory=place.device.type == "cuda",
    )
    network = with_plain_norms(CifarResNet(options.depth))
    train_and_tell(network, loader, options.steps, WARM_UP_STEPS, 0.0, place)


if __name__ == "__main__":
    main()
