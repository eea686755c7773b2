"""From what watching tools recorded to what answers judge: how busy each host was, what it sent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.report.facts.facts import HostSeries, HostUse, Numbers
from paceline.report.foreign.counters.counters import (
    CPU,
    DEVICE,
    MEMORY,
    POWER,
    RECEIVED,
    SENT,
    Counters,
    Timed,
)
from paceline.units import format_seconds


@dataclass(frozen=True)
class Stretch:
    """When the run trained, by the clock of its log; None where that has none."""

    begin: float | None
    end: float | None


def host_uses(
    found: Sequence[Counters], stretch: Stretch, step_seconds: float, num_steps: int
) -> list[HostUse]:
    return [_use(one, _held(one, stretch), step_seconds, num_steps) for one in found]


def _held(one: Counters, stretch: Stretch) -> dict[str, Timed]:
    """What was recorded while it trained; everything where the two clocks do not meet."""
    if not _meets(one, stretch):
        return one.samples
    begin, end = stretch.begin or 0.0, stretch.end or math.inf
    inside = {w: [p for p in held if begin <= p[0] <= end] for w, held in one.samples.items()}
    return {what: held for what, held in inside.items() if held}


def _meets(one: Counters, stretch: Stretch) -> bool:
    span = one.span
    if span is None or stretch.begin is None or stretch.end is None:
        return False
    return min(span[1], stretch.end) - max(span[0], stretch.begin) > 0


def _use(one: Counters, held: dict[str, Timed], step_seconds: float, num_steps: int) -> HostUse:
    sent, received = _mean(held.get(SENT)), _mean(held.get(RECEIVED))
    times = [time for timed in held.values() for time, _ in timed]
    return HostUse(
        host=one.host,
        interface=one.interface,
        link_bits_per_second=None,
        seconds=max(times) - min(times) if times else 0.0,
        cpu_share=_mean(held.get(CPU)),
        stolen_share=math.nan,
        memory_bytes=_mean(held.get(MEMORY)),
        memory_total_bytes=one.memory_total_bytes or math.nan,
        device_share=_mean(held.get(DEVICE)),
        device_names=one.device_names,
        power_watts=_mean(held.get(POWER)),
        sent_bytes_per_second=sent,
        received_bytes_per_second=received,
        sent_bytes_per_step=sent * step_seconds if step_seconds else math.nan,
        received_bytes_per_step=received * step_seconds if step_seconds else math.nan,
        num_steps=num_steps,
        series=_series(held),
    )


def _mean(timed: Timed | None) -> float:
    return sum(value for _, value in timed) / len(timed) if timed else math.nan


def _series(held: dict[str, Timed]) -> HostSeries:
    longest = max(held.values(), key=len, default=[])
    times = np.array([time for time, _ in longest])
    begin = times[0] if len(times) else 0.0

    def at_times(what: str) -> Numbers:
        timed = held.get(what)
        if not timed:
            return np.full(len(times), np.nan)
        at, values = np.array([t for t, _ in timed]), np.array([v for _, v in timed])
        return np.asarray(np.interp(times, at, values), dtype=np.float64)

    return HostSeries(
        hours=(times - begin) / 3600,
        cpu_share=at_times(CPU),
        device_share=at_times(DEVICE),
        sent_bytes_per_second=at_times(SENT),
        received_bytes_per_second=at_times(RECEIVED),
    )


def in_words(found: Sequence[Counters], stretch: Stretch, about: Sequence[str]) -> str:
    """Which tool, what a value stands for, and whether it is of this run's time."""
    told = []
    for one in found:
        if not any(what in one.samples for what in about):
            continue
        period = one.period
        every = f" every {format_seconds(period)}" if period else ""
        kind = "a glimpse" if one.is_point_in_time else "the mean of the time"
        when = (
            "while it trained"
            if _meets(one, stretch)
            else "all of them: the log has no clock that meets theirs"
        )
        count = max((len(held) for held in one.samples.values()), default=0)
        told.append(f"{one.tool} on {one.host}: {kind}{every}, {count:,} values, {when}")
    return "; ".join(told)
