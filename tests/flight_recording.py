"""A process of two whose collective is queued and never joined: `... STORE RANK PULSE_DIRECTORY`.

Rank 0 queues an all-reduce and waits, as the host of a CUDA device does; rank 1 is busy
with something else. Both write what a supervisor would see.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE
from paceline.train.measure.device_clock import wait_for_device
from paceline.train.watchdog import Pulse


class LateEvent:
    """It takes as long as the file is not there."""

    def __init__(self, until: Path) -> None:
        self._until = until

    def synchronize(self) -> None:
        while not self._until.exists():
            time.sleep(0.05)


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
    pulse.watch(clock, lambda: 7)
    over = folder / "over"
    if rank == 0:
        queued = dist.all_reduce(values, async_op=True)
        with clock.more_of(COMPUTE):
            wait_for_device(LateEvent(over))
    else:
        with clock.more_of(COMPUTE):
            while not over.exists():
                time.sleep(0.05)
        queued = dist.all_reduce(values, async_op=True)
    queued.wait()
    pulse.end("finished")


if __name__ == "__main__":
    main()
