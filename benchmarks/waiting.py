"""How threads wait for each other: images/s of a process with two threads, alone and beside others.

Every way of waiting trains the same small ResNet for a few seconds, in turn (A B C A B C ...), once
with the cores to itself and once beside a program that keeps every core busy. Reported are medians
and, against OpenMP's default, the median of paired ratios.

    python -m benchmarks.waiting [--rounds N] [--seconds S]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from paceline.machine.cores import num_cores
from paceline.machine.load import cores_are_busy
from paceline.machine.tuning import SPIN_ON_IDLE_CORES, speed_environment

DEFAULT = "OpenMP's default: spin for long"
_HOW_TO_WAIT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_BUSY = "while True: pass"
_BATCH = 32


def ways(num_threads: int) -> dict[str, dict[str, str]]:
    """Environment of a worker by the name of a way to wait."""
    own = speed_environment(1)
    plain = {name: value for name, value in own.items() if name not in _HOW_TO_WAIT}
    plain["OMP_NUM_THREADS"] = str(num_threads)
    return {
        DEFAULT: plain,
        "Paceline's": own,
        "Paceline's, if the cores were idle at its start": {
            **plain,
            "GOMP_SPINCOUNT": SPIN_ON_IDLE_CORES,
        },
        "never spin": {**plain, "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"},
        "one thread": {**plain, "OMP_NUM_THREADS": "1"},
    }


def train_for(seconds: float) -> None:
    """In a process of its own: the environment acts before it starts."""
    import torch
    import torch.nn.functional as F

    from paceline.models.norm import take_statistics
    from paceline.tasks.cifar10.resnet import CifarResNet

    torch.manual_seed(1)
    network = CifarResNet(8).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    pictures = torch.randn(_BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (_BATCH,))
    num_steps, began, until = -5, 0.0, float("inf")  # five steps to warm up
    while time.perf_counter() < until:
        torch.autograd.backward(F.cross_entropy(network(pictures), labels))
        take_statistics(network)
        optimizer.step()
        optimizer.zero_grad()
        num_steps += 1
        if num_steps == 0:
            began, cpu_began = time.perf_counter(), time.process_time()
            until = began + seconds
    images = num_steps * _BATCH
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps([images / wall, images / cpu]))


@contextmanager
def others(count: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(environment: dict[str, str], seconds: float) -> tuple[float, float]:
    """Images per second, and per CPU-second."""
    kept = {name: value for name, value in os.environ.items() if name not in _HOW_TO_WAIT}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.waiting", "--child", str(seconds)],
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    per_second, per_cpu_second = json.loads(done.stdout)
    return per_second, per_cpu_second


def compare(title: str, num_busy: int, num_rounds: int, seconds: float) -> None:
    with others(num_busy):
        cores_are_busy.cache_clear()
        chosen = ways(num_cores())
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
        for _ in range(num_rounds):
            for name, environment in chosen.items():
                found[name].append(measure(environment, seconds))
    print(f"\n{title}\n| threads wait | images/s | against the default | per CPU-second |")
    print("|---|---|---|---|")
    for name, rates in found.items():
        pairs = list(zip(rates, found[DEFAULT], strict=True))
        wall, cpu = (median(own[n] / default[n] for own, default in pairs) for n in (0, 1))
        print(
            f"| {name} | {median(r[0] for r in rates):.0f} | {wall:.2f} | {cpu:.2f} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        train_for(arguments.child)
        return
    compare("The cores to itself", 0, arguments.rounds, arguments.seconds)
    compare("Beside a program on every core", num_cores(), arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
