"""A process of two whose collective is queued and never joined: `... STORE RANK PULSE_DIRECTORY`.

Rank 0 queues an all-reduce and waits in a read, as the host of a CUDA device does; rank 1 is busy
with something else. Both write what a supervisor would see.
"""

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE
from paceline.train.measure.device_clock import read_numbers
from paceline.train.watchdog import Pulse


class LateNumbers(list[torch.Tensor]):
    """A read that takes as long as the file is not there."""

    def __init__(self, until: Path) -> None:
        super().__init__([torch.zeros(())])
        self._until = until

    def __iter__(self) -> Iterator[torch.Tensor]:
        while not self._until.exists():
            time.sleep(0.05)
        return super().__iter__()


def main() -> None:
    store, rank, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    values = torch.ones(10)
    dist.all_reduce(values)
    clock = PhaseClock()
    pulse = Pulse(folder, rank, lambda: False)
    pulse.watch(clock, lambda: 7, lambda: 0.0)
    over = folder / "over"
    if rank == 0:
        queued = dist.all_reduce(values, async_op=True)
        with clock.more_of(COMPUTE):
            read_numbers(LateNumbers(over))
    else:
        with clock.more_of(COMPUTE):
            while not over.exists():
                time.sleep(0.05)
        queued = dist.all_reduce(values, async_op=True)
    queued.wait()
    pulse.end("finished")


if __name__ == "__main__":
    main()
