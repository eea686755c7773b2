"""One of two processes of which the second never joins: `python -m ... FOLDER DEVICE`.

Started by `faults.hang_is_named`, which ends it. Both tell where they are, as workers do.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.lifetime import die_with_parent
from paceline.order import WorkerOrder
from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE
from paceline.train.measure.device_clock import UnreadNumbers
from paceline.train.watchdog import Pulse
from paceline.world import join

_LONGER_THAN_ANYBODY_WATCHES = 600.0


def main() -> None:
    die_with_parent()
    folder, device = Path(sys.argv[1]), sys.argv[2]
    order = WorkerOrder(store=str(folder / "store"))
    world = join(device, _LONGER_THAN_ANYBODY_WATCHES, order)
    values = torch.ones(10, device=world.device)
    UnreadNumbers([world.add_up(values).sum()]).read()
    clock = PhaseClock()
    pulse = Pulse(folder, world.rank, lambda: False)
    pulse.watch(clock, lambda: 7)
    with clock.more_of(COMPUTE):
        if world.is_first:
            dist.all_reduce(values)  # Gloo waits here, NCCL only queues
            UnreadNumbers([values.sum()]).read()
        time.sleep(_LONGER_THAN_ANYBODY_WATCHES)


if __name__ == "__main__":
    main()
