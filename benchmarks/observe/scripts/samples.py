"""The network, the data and the options that the scripts of this folder share."""

import argparse
import time

import torch
from torch.utils.data import Dataset, IterableDataset

WIDTH, CLASSES = 512, 128


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=256, help="samples of a process in a step")
    parser.add_argument("--read-seconds", type=float, default=0.0, help="for each sample")
    parser.add_argument("--save", default="", help="a folder for checkpoints")
    parser.add_argument("--save-every", type=int, default=4)
    torch.set_num_threads(1)
    return parser.parse_args()


def network() -> torch.nn.Module:
    """2.5 million parameters: 10 MB of gradients."""
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 1536),
        torch.nn.ReLU(),
        torch.nn.Linear(1536, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, CLASSES),
    )


class Samples(Dataset):
    """As if each were read from somewhere."""

    def __init__(self, size: int, read_seconds: float) -> None:
        self.size, self.read_seconds = size, read_seconds
        self.table = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int):
        if self.read_seconds:
            time.sleep(self.read_seconds)
        return self.table[index % 64], index % CLASSES


class Stream(IterableDataset):
    """The same without a length."""

    def __init__(self, size: int, read_seconds: float) -> None:
        self.samples = Samples(size, read_seconds)

    def __iter__(self):
        return (self.samples[number] for number in range(len(self.samples)))
