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
from paceline.world import World

Sent = torch.futures.Future[torch.Tensor]
_FP32_BYTES = 4
_DDPS_BUCKET_MB = 25


@dataclass(frozen=True)
class Sender:
    """What is done with a bucket that is ready."""

    hook: Callable[[Any, Any], Sent]
    bytes_per_value: int


SENDERS: Mapping[str, Sender] = {
    "plain": Sender(default_hooks.allreduce_hook, _FP32_BYTES),
    "fp16": Sender(default_hooks.fp16_compress_hook, 2),
    # DDP refuses this hook under Gloo by its name; called from ours it works there.
    "bf16": Sender(default_hooks.bf16_compress_hook, 2),
}


class GradientExchange(Exchange):
    """DDP, with every bucket counted."""

    def __init__(
        self, network: nn.Module, world: World, settings: ReduceSettings, sender: Sender
    ) -> None:
        super().__init__(network, world)
        self.sender = sender
        # Weights are sent when a run begins or goes on, and that is enough.
        self._model = world.wrap(network, init_sync=False, **bucket_options(settings))
        self._model.register_comm_hook(self, _send_bucket)

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
    exchange.watch.bucket_is_ready(bucket.buffer().numel() * exchange.sender.bytes_per_value)
    everyone = dist.group.WORLD
    assert everyone is not None  # noqa: S101  (DDP exists only in a group)
    return exchange.sender.hook(everyone, bucket)
