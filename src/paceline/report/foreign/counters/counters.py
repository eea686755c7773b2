"""What tools that watch a machine record beside a training: one value per period of time.

Whatever the tool, its reader fills one `Counters` per host, in seconds, bytes and shares of 1, so
that nobody has to remember which tool counts megabits and which megabytes. No file is read here.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

Timed = list[tuple[float, float]]
"""Seconds since 1970 (by the clock that the tool used), and the value."""

CPU = "cpu"
DEVICE = "device"
DEVICE_MEMORY = "device memory"
MEMORY = "memory"
POWER = "power"
SENT = "sent"
RECEIVED = "received"
_MOST_SAMPLES = 20_000


@dataclass
class Counters:
    host: str
    tool: str
    device_names: tuple[str, ...] = ()
    memory_total_bytes: float | None = None
    interface: str = ""
    samples: dict[str, Timed] = field(default_factory=dict)
    """By what was counted: shares of 1 for cores and devices, bytes a second for traffic, watts,
    bytes. Of several devices or interfaces one value per moment: the mean of shares, the sum of
    the others."""
    period_seconds: float | None = None
    """What one value stands for, where the tool says so; else the usual distance of values."""
    is_point_in_time: bool = False
    """A value is what was found at a moment, not the mean of a period."""
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, time: float, value: float) -> None:
        held = self.samples.setdefault(what, [])
        held.append((time, value))
        if len(held) > 2 * _MOST_SAMPLES:
            # Neighbours are averaged, so that means stay what they were.
            self.samples[what] = [
                (b[0], (a[1] + b[1]) / 2) for a, b in zip(held[::2], held[1::2], strict=True)
            ]

    @property
    def period(self) -> float | None:
        """Seconds between values."""
        if self.period_seconds:
            return self.period_seconds
        longest = max(self.samples.values(), key=len, default=[])
        gaps = [b[0] - a[0] for a, b in pairwise(longest) if b[0] > a[0]]
        return median(gaps) if gaps else None

    @property
    def span(self) -> tuple[float, float] | None:
        times = [time for held in self.samples.values() for time, _ in held]
        return (min(times), max(times)) if times else None
