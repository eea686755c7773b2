"""An empty DDP loop, the least that torchrun can start: `torchrun ... plain_start.py FILE`.

The first process writes down the time at the end of its first step, each time that it is started.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    is_new = True
    while True:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        if is_new and dist.get_rank() == 0:
            with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
                file.write(f"{time.time()}\n")
        is_new = False
        time.sleep(0.01)  # waits to be killed, and leaves the cores to whoever is measured


if __name__ == "__main__":
    main()
