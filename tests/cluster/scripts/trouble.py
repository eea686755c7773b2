"""What goes wrong inside of a script, on one rank and at one step. Nothing here knows Paceline."""

import os
import sys
import time

import torch
import torch.distributed as dist


def before_start(kind: str) -> None:
    if kind == "never" and os.environ["RANK"] == "1":
        print("waits for something that never comes", flush=True)
        time.sleep(3600)


def after_step(kind: str, step: int) -> None:
    if step != 5 or dist.get_rank() != 1:
        return
    if kind == "exception":
        raise ValueError("a label is out of range")
    if kind == "leave":
        sys.exit(0)
    if kind == "memory":
        torch.empty(1 << 50)
    if kind == "mismatch":
        dist.broadcast(torch.ones(7), 0)
