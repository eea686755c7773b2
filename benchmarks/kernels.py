"""Steps with the compiled kernels against the same steps with torch's own operations.

Both take turns (A B A B ...) in one process with one thread, as a worker has it; what is reported
is the median of the paired ratios of CPU-seconds, which stolen time does not touch.

    python -m benchmarks.kernels [--rounds N]
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median

import torch
import torch.nn.functional as F

from paceline.kernels import operation
from paceline.machine.cores import num_cores
from paceline.machine.tuning import speed_environment
from paceline.models.norm import take_statistics
from paceline.models.shapes import named_shape
from paceline.models.transformer import Transformer
from paceline.tasks.cifar10.fastnet import FastNet
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.tasks.imagenet.resnet import ImagenetResNet

Step = Callable[[], None]


def step_of_pictures(network: torch.nn.Module, batch: int, size: int) -> Step:
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pictures = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,))

    def step() -> None:
        torch.autograd.backward(F.cross_entropy(network(pictures), labels))
        take_statistics(network)
        network.zero_grad()

    return step


def step_of_text(size: str, num_sentences: int, length: int, num_pieces: int) -> Step:
    network = Transformer(named_shape(size, num_pieces)).train()
    batch = [torch.randint(4, num_pieces, (num_sentences, length)) for _ in range(3)]

    def step() -> None:
        torch.autograd.backward(network(*batch).loss_sum)
        network.zero_grad()

    return step


def cases() -> dict[str, Callable[[], Step]]:
    return {
        "cifar10-fast at 32 px": lambda: step_of_pictures(FastNet((64, 128, 256)), 256, 32),
        "cifar10-fast at 20 px": lambda: step_of_pictures(FastNet((64, 128, 256)), 256, 20),
        "cifar10-resnet44": lambda: step_of_pictures(CifarResNet(44), 128, 32),
        "imagenet-resnet18 at 224 px": lambda: step_of_pictures(ImagenetResNet(18, 10), 16, 224),
        "nmt-small, 8,000 pieces": lambda: step_of_text("small", 128, 16, 8000),
        "nmt-base, 32,768 pieces": lambda: step_of_text("base", 128, 16, 32768),
    }


def cpu_seconds(step: Step, has_kernels: bool) -> float:
    with nullcontext() if has_kernels else operation.turned_off():
        began = time.process_time()
        step()
        return time.process_time() - began


def compare(name: str, step: Step, num_rounds: int) -> None:
    for has_kernels in (True, False):
        cpu_seconds(step, has_kernels)  # the first one compiles, allocates and warms up
    pairs = [(cpu_seconds(step, False), cpu_seconds(step, True)) for _ in range(num_rounds)]
    without, with_them = (median(times) for times in zip(*pairs, strict=True))
    ratio = median(one / other for one, other in pairs)
    print(f"| {name} | {without:.3f} | {with_them:.3f} | {ratio:.2f} |", flush=True)


def start_as_a_worker() -> None:
    """Once more, with the environment that a launcher gives: it acts before a process starts."""
    wanted = speed_environment(num_procs=num_cores())
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        words = [sys.executable, "-m", "benchmarks.kernels", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **wanted})  # noqa: S606


def main() -> None:
    start_as_a_worker()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    print("| step | torch, CPU-s | with kernels, CPU-s | ratio |\n|---|---|---|---|")
    for name, make in cases().items():
        torch.manual_seed(1)
        compare(name, make(), arguments.rounds)


if __name__ == "__main__":
    main()
