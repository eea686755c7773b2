"""The all-reduce of gradients, watched: how much went out, and what of it compute did not hide."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from paceline.train.measure.device_clock import DeviceMarks


@dataclass
class ReductionWatch:
    """Filled during backward. Communication can only be hidden until the last bucket is ready;
    what backward still takes from then on is waiting."""

    marks: DeviceMarks
    last_bucket_ready: float = 0.0
    reduced_bytes: int = 0

    def waited_seconds(self) -> float:
        """Since the last bucket was ready. To be asked right after backward."""
        return time.perf_counter() - self.last_bucket_ready if self.last_bucket_ready else 0.0

    def start_step(self) -> None:
        self.last_bucket_ready = 0.0

    def take_reduced_bytes(self) -> int:
        taken, self.reduced_bytes = self.reduced_bytes, 0
        return taken


def watch_reduction(model: nn.Module, marks: DeviceMarks) -> ReductionWatch:
    watch = ReductionWatch(marks)
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(watch, _watched_all_reduce)
    return watch


def lay_out_buckets(model: nn.Module) -> None:
    """What DDP does in the forward pass after the first backward: agree with the others on a new
    layout. Done ahead, or the first step would wait for the slowest process inside of compute."""
    if isinstance(model, DistributedDataParallel):
        model.reducer._rebuild_buckets()


def _watched_all_reduce(
    watch: ReductionWatch,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # DDP insists on this very annotation
) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    watch.reduced_bytes += buffer.numel() * buffer.element_size()
    watch.last_bucket_ready = time.perf_counter()
    watch.marks.mark("ready")
    everyone = dist.group.WORLD
    assert everyone is not None  # noqa: S101  (DDP exists only in a group)
    return allreduce_hook(everyone, bucket)
