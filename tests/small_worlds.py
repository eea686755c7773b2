"""A few real processes with a group, for what a whole training would show only slowly."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.world import World

Job = Callable[[World], Any]


def in_world_of(size: int, job: Job) -> list[Any]:
    """What a function of a test module returns in each process, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        with context.Pool(size) as pool:
            orders = [(rank, size, folder, job) for rank in range(size)]
            return pool.map(_work, orders, chunksize=1)


def _work(order: tuple[int, int, str, Job]) -> Any:
    rank, size, folder, job = order
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=size
    )
    try:
        return job(World(rank, size, torch.device("cpu")))
    finally:
        dist.destroy_process_group()
