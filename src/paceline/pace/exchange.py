"""How long gradients take to go around, and what of it hides behind backward. Pure arithmetic.

Every function takes numbers or arrays of draws alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from paceline.pace.job import FIRST_BUCKET_BYTES, RING, TREE, Exchange, Part

Numbers = NDArray[np.float64]

PAYLOAD: Final = 0.945
"""Of a line's bits: what is left for data after the headers of Ethernet, IP and TCP."""
BACKWARD_SHARE: Final = 2 / 3
"""Of a pass: backward computes two products where forward computes one."""
_INSIDE_LATENCY: Final = 10e-6
"""Seconds of a message between two devices of a host."""
_EVEN_PARTS: Final = 32
_MOST_BUCKETS: Final = 64
"""More are put together: a timeline of thousands says nothing more."""


@dataclass(frozen=True)
class Size:
    """How many hosts, and how many processes (one per device) on each."""

    hosts: int
    devices: int = 1

    @property
    def processes(self) -> int:
        return self.hosts * self.devices


@dataclass(frozen=True)
class Wire:
    """The figures that sending depends on, each as a number or as an array of possible values."""

    bits_per_second: Numbers
    latency_seconds: Numbers
    copying: Numbers
    """Seconds of a processor for a byte that is sent."""
    coding: Numbers


@dataclass(frozen=True)
class Exchanged:
    """What the exchange of a step takes."""

    wire: Numbers
    """Seconds of the link, hidden or not."""
    exposed: Numbers
    """Seconds after the end of backward until all is there."""
    beside: Numbers
    """Seconds by which copying beside it, and compressing, make the pass longer."""
    last: Numbers
    """Seconds of the bucket that backward completes last, which is what forward needs first."""
    copying: Numbers
    """Seconds of the processors for all that is sent: `beside` has those of what backward hides."""


def ring_bytes(size: Size, num_bytes: Numbers) -> Numbers:
    """That leave each host: the ring passes through a host's devices and leaves it once.

    2 (N-1)/N of the gradients for N processes; nothing where all of them are on one host.
    """
    if size.hosts == 1:
        return 0 * num_bytes
    return 2 * (size.processes - 1) / size.processes * num_bytes


def sent_bytes(size: Size, gradient_bytes: Numbers, exchange: Exchange) -> Numbers:
    """Of one host in a step, on the average."""
    share = exchange.sent_share / exchange.every_steps
    return ring_bytes(size, gradient_bytes) * share


def all_reduce_seconds(size: Size, num_bytes: Numbers, exchange: Exchange, wire: Wire) -> Numbers:
    """Of one bucket, by the fastest of the library's algorithms."""
    found: list[Numbers] = [
        _ring(size, num_bytes, wire) if kind == RING else _tree(size, num_bytes, wire)
        for kind in exchange.algorithms
    ]
    seconds: Numbers = np.min(found, axis=0) + _inside(size, num_bytes, exchange)
    return seconds


def _ring(size: Size, num_bytes: Numbers, wire: Wire) -> Numbers:
    """Every process waits for its neighbour 2 (N-1) times."""
    between = 2 * (size.hosts - 1) if size.hosts > 1 else 0
    inside = 2 * (size.processes - 1) - between
    waits = between * wire.latency_seconds + inside * _INSIDE_LATENCY
    on_link: Numbers = _link_seconds(ring_bytes(size, num_bytes), wire) + waits
    return on_link


def _tree(size: Size, num_bytes: Numbers, wire: Wire) -> Numbers:
    """Two binary trees, each with half of the data: all of it twice, in few waits."""
    if size.hosts == 1:
        return _ring(size, num_bytes, wire)
    waits = 2 * math.ceil(math.log2(size.hosts)) * wire.latency_seconds
    inside = 2 * (size.devices - 1) * _INSIDE_LATENCY
    on_link: Numbers = _link_seconds(2 * num_bytes, wire) + waits + inside
    return on_link


def _link_seconds(num_bytes: Numbers, wire: Wire) -> Numbers:
    """Copying goes on while other bytes are on the wire: the slower of the two counts."""
    sending = 8 * num_bytes / (PAYLOAD * wire.bits_per_second)
    seconds: Numbers = np.maximum(sending, wire.copying * num_bytes)
    return seconds


def _inside(size: Size, num_bytes: Numbers, exchange: Exchange) -> Numbers:
    """Between the devices of a host."""
    share = 2 * (size.devices - 1) / size.devices
    inside: Numbers = share * num_bytes / exchange.inside_bytes_per_second
    return inside


def buckets_of(parts: Sequence[Part], bucket_bytes: float) -> list[Part]:
    """As DDP fills them, in the order in which gradients are ready; each waits for its last."""
    total = sum(part.num_bytes for part in parts)
    limit = max(bucket_bytes, total / _MOST_BUCKETS)
    first = min(FIRST_BUCKET_BYTES, limit)
    buckets: list[Part] = []
    pending = 0.0
    for part in parts:
        pending += part.num_bytes
        if pending >= (limit if buckets else first):
            buckets.append(Part(pending, part.ready))
            pending = 0.0
    if pending:
        buckets.append(Part(pending, parts[-1].ready))
    return buckets


def even_parts(num_bytes: float) -> tuple[Part, ...]:
    """Where nobody measured when gradients are ready."""
    each, begin = num_bytes / _EVEN_PARTS, 1 - BACKWARD_SHARE
    return tuple(
        Part(each, begin + BACKWARD_SHARE * (n + 1) / _EVEN_PARTS) for n in range(_EVEN_PARTS)
    )


def exchanged(
    size: Size, gradient_bytes: Numbers, pass_seconds: Numbers, exchange: Exchange, wire: Wire
) -> Exchanged:
    """One exchange after, and beside, the last pass of a step."""
    nothing = 0 * gradient_bytes * pass_seconds
    if size.processes == 1:
        return Exchanged(nothing, nothing, nothing, nothing, nothing)
    total = float(np.median(gradient_bytes))
    parts = exchange.parts or even_parts(total)
    scale = gradient_bytes / sum(part.num_bytes for part in parts)
    clock, on_wire, seconds = nothing, nothing, nothing
    for bucket in buckets_of(parts, exchange.bucket_bytes):
        num_bytes = exchange.sent_share * bucket.num_bytes * scale
        seconds = all_reduce_seconds(size, num_bytes, exchange, wire)
        clock = np.maximum(clock, bucket.ready * pass_seconds) + seconds
        on_wire = on_wire + seconds
    exposed = np.maximum(clock - pass_seconds, 0.0)
    hidden = 1 - np.minimum(exposed / np.maximum(on_wire, 1e-12), 1.0)
    sent = exchange.sent_share * ring_bytes(size, gradient_bytes)
    copying = wire.copying * sent / exchange.processors
    beside = copying * hidden + wire.coding * gradient_bytes
    found = (on_wire, exposed, beside, seconds, copying)
    return Exchanged(*(values / exchange.every_steps for values in found))


__all__ = ["RING", "TREE", "Exchanged", "Size", "Wire", "exchanged", "ring_bytes", "sent_bytes"]
