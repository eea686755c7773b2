"""When in a pass each gradient is ready: what an all-reduce could hide behind backward.

One process alone sends nothing, and still tells how well it could: gradients that are ready early
can be on their way while backward goes on, one that is ready last (a tied embedding) cannot.
Watched in a few steps, with a hook on every weight that is gone afterwards. On a processor only: on
a device the host's clock would say when work was queued.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Final

import torch
from torch import nn

_FIRST: Final = 3
"""Passes before that find cold caches."""
_NUM_WATCHED: Final = 3
_MOST_PARTS: Final = 48

Part = tuple[int, float]
"""Bytes, and the share of the pass after which they are ready."""


class Readiness:
    """Times the last pass of some steps; `take` gives the outcome once."""

    def __init__(self, network: nn.Module, is_watched: bool) -> None:
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        self._weights = weights if is_watched else []
        self._num_passes = 0
        self._passes: list[list[float]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._num_passes += 1
        if not self._weights or not _FIRST <= self._num_passes < _FIRST + _NUM_WATCHED:
            yield
            return
        ready = [0.0] * len(self._weights)
        began = time.perf_counter()

        def stamp(number: int, _weight: torch.Tensor) -> None:
            ready[number] = time.perf_counter() - began

        hooks = [
            weight.register_post_accumulate_grad_hook(partial(stamp, number))  # type: ignore[no-untyped-call]
            for number, weight in enumerate(self._weights)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        seconds = max(time.perf_counter() - began, 1e-9)
        self._passes.append([min(each / seconds, 1.0) for each in ready])

    def take(self) -> list[Part]:
        """Bytes in the order in which they are ready; nothing before all passes were watched."""
        if len(self._passes) < _NUM_WATCHED:
            return []
        shares = [median(each) for each in zip(*self._passes, strict=True)]
        sizes = [weight.numel() * weight.element_size() for weight in self._weights]
        self._passes, self._weights = [], []
        return in_parts(sorted(zip(shares, sizes, strict=True)))


def in_parts(ready: Sequence[tuple[float, int]]) -> list[Part]:
    """Neighbours together, so that few parts are left; each is ready when its last weight is."""
    least = sum(size for _, size in ready) / _MOST_PARTS
    parts: list[Part] = []
    pending = 0
    for share, size in ready:
        pending += size
        if pending >= least:
            parts.append((pending, round(share, 4)))
            pending = 0
    if pending:
        parts.append((pending, round(ready[-1][0], 4)))
    return parts


def can_watch(device: torch.device, is_compiled: bool) -> bool:
    """Compiled backward gives all gradients of a graph at once, and its hooks may not be seen."""
    return device.type == "cpu" and not is_compiled
