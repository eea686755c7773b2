"""A plain loop with DistributedDataParallel and its defaults: the peer of `benchmarks.reduce`.

Started once per host with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; a world of one measures
what a step takes without communication. Prints seconds per step as JSON.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.reduce_task import LENGTH, NUM_PIECES, TIED, UNTIED, Network, loss_sum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--network", choices=(TIED, UNTIED), default=TIED)
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    network: nn.Module = Network(asked.network)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        network = DistributedDataParallel(network)
    print(json.dumps(measure(network, asked.rows, asked.steps)), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def measure(network: nn.Module, rows: int, num_steps: int) -> list[float]:
    """After two steps, in which DDP lays out its buckets and Adam its state."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    seconds = []
    for step in range(num_steps + 2):
        began = time.perf_counter()
        tokens = torch.randint(0, NUM_PIECES, (rows, LENGTH))
        loss = loss_sum(network, tokens) / tokens.numel()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step >= 2:
            seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
