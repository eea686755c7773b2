"""Gradients of every step, averaged by DDP while backward goes on; in fewer bits where asked."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from paceline.settings import ReduceSettings
from paceline.train.reduce.exchange import Exchange, send_first_weights
from paceline.train.reduce.hierarchy import Hierarchy, hosts_of, is_useful
from paceline.world import World

Sent = torch.futures.Future[torch.Tensor]
_FP32_BYTES = 4
_DDPS_BUCKET_MB = 25


@dataclass(frozen=True)
class Sender:
    """What is done with a bucket that is ready."""

    hook: Callable[[Any, Any], Sent]
    number_type: torch.dtype | None = None
    """On the wire, where it is not that of the gradients."""

    @property
    def bytes_per_value(self) -> int:
        return self.number_type.itemsize if self.number_type else _FP32_BYTES


SENDERS: Mapping[str, Sender] = {
    "plain": Sender(default_hooks.allreduce_hook),
    "fp16": Sender(default_hooks.fp16_compress_hook, torch.float16),
    # DDP refuses this hook under Gloo by its name; called from ours it works there.
    "bf16": Sender(default_hooks.bf16_compress_hook, torch.bfloat16),
}


class GradientExchange(Exchange):
    """DDP, with every bucket counted."""

    def __init__(
        self, network: nn.Module, world: World, settings: ReduceSettings, sender: Sender
    ) -> None:
        super().__init__(network, world)
        self.sender = sender
        self.hierarchy = None
        if settings.hierarchical and is_useful(hosts_of(world.gather_values(world.host))):
            self.hierarchy = Hierarchy(world, sender.number_type)
        # Weights are sent when a run begins or goes on, and that is enough.
        self._model = world.wrap(network, init_sync=False, **bucket_options(settings))
        self._model.register_comm_hook(self, _send_bucket)

    def send(self, bucket: Any) -> Sent:
        values = bucket.buffer()
        num_bytes = values.numel() * self.sender.bytes_per_value
        if self.hierarchy is None:
            self.watch.bucket_is_ready(num_bytes)
            return self.sender.hook(dist.group.WORLD, bucket)
        # Counted as the ring through all processes that would send as much between hosts.
        self.watch.bucket_is_ready(int(num_bytes * self.hierarchy.ring_share()))
        return self.hierarchy.average(values)

    @property
    def model(self) -> nn.Module:
        return self._model

    def begin(self) -> None:
        send_first_weights(self.network, self.world)

    def micro_batch(self, is_last: bool) -> AbstractContextManager[Any]:
        kept_at_home: AbstractContextManager[Any] = self._model.no_sync()
        return nullcontext() if is_last else kept_at_home

    def lay_out(self) -> None:
        """What DDP does in the forward pass after the first backward: agree with the others on a
        new layout. Done ahead, or the first step would wait for the slowest process in compute."""
        self._model.reducer._rebuild_buckets()


def bucket_options(settings: ReduceSettings) -> dict[str, Any]:
    """DDP's own for its own sizes, whatever they are called in this release of torch."""
    first, rest = settings.first_bucket_mb, settings.bucket_mb or _DDPS_BUCKET_MB
    if (first, rest) == (ReduceSettings().first_bucket_mb, _DDPS_BUCKET_MB):
        return {}
    if "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel.__init__).parameters:
        return {"bucket_cap_mb_list": [min(first, rest), rest]}
    return {"bucket_cap_mb": rest}  # before torch 2.13 the first bucket is one like all others


def _send_bucket(
    exchange: GradientExchange,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # DDP insists on this very annotation
) -> Sent:
    return exchange.send(bucket)
