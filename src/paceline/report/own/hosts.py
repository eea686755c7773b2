"""What each host did, from its probes: how busy it was and what went over its interface."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.record.events import Event, read_probes
from paceline.record.schema import RunDirectory
from paceline.report.facts.facts import HostSeries, HostUse

Numbers = NDArray[np.float64]

_MOST_BYTES = 1 << 20
_MOST_POINTS = 300


def read_hosts(run: RunDirectory, first_steps: dict[int, int]) -> list[HostUse]:
    """`first_steps` is from which step each attempt began."""
    found = [host_use(path, first_steps) for path in sorted(run.events.glob("host-*.jsonl"))]
    return [use for use in found if use is not None]


def host_use(path: Path, first_steps: dict[int, int]) -> HostUse | None:
    probes = [p for p in read_probes(path, _MOST_BYTES) if _number(p.get("seconds")) > 0]
    # Of a file that is read in windows, only its very first probe is sure to begin an attempt.
    is_whole = path.stat().st_size <= _MOST_BYTES
    known = first_steps if is_whole or not probes else {1: first_steps.get(1, 0)}
    return use_of(probes, path.stem.removeprefix("host-"), known) if probes else None


def use_of(probes: list[Event], name: str, first_steps: dict[int, int]) -> HostUse:
    seconds = _column(probes, "seconds")
    sent, received = _column(probes, "sent_bytes"), _column(probes, "received_bytes")
    steps, counted = _steps_of(probes, first_steps)
    num_steps = int(steps.sum())
    # A script is watched from its start on: importing and shutting down are no load of its steps.
    stepping = np.where(_between_steps(probes, counted), seconds, 0.0)
    last = probes[-1]
    return HostUse(
        host=str(last.get("host", name)),
        interface=str(last.get("interface", "")),
        link_bits_per_second=last.get("link_bits_per_second"),
        seconds=float(seconds.sum()),
        cpu_share=_mean(_column(probes, "cpu_share"), stepping),
        stolen_share=_mean(_column(probes, "stolen_share"), stepping),
        memory_bytes=_most(_column(probes, "memory_bytes")),
        memory_total_bytes=_most(_column(probes, "memory_total_bytes")),
        device_share=_mean(_of_devices(probes, "utilisation", np.mean), stepping),
        device_names=tuple(str(d.get("name", "?")) for d in _devices(last)),
        power_watts=_mean(_of_devices(probes, "power_watts", np.sum), stepping),
        sent_bytes_per_second=_per(sent, float(seconds.sum())),
        received_bytes_per_second=_per(received, float(seconds.sum())),
        sent_bytes_per_step=_per(sent[counted], num_steps),
        received_bytes_per_step=_per(received[counted], num_steps),
        num_steps=num_steps,
        series=_series(probes),
    )


def _steps_of(
    probes: list[Event], first_steps: dict[int, int]
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Steps done during each probe, and whether its bytes count for the steps.

    Counted is up to the last probe of an attempt that saw a step end: what comes later is no
    step's. Probing starts just before the first step.
    """
    steps, times = _column(probes, "step"), _column(probes, "time")
    attempts, seconds = _column(probes, "attempt"), _column(probes, "seconds")
    is_first = np.diff(attempts, prepend=math.nan) != 0
    done = np.diff(steps, prepend=math.nan)
    done[is_first] = [
        step - first_steps.get(int(attempt), math.nan)
        for step, attempt in zip(steps[is_first], attempts[is_first], strict=True)
    ]
    gap = np.abs(np.diff(times, prepend=math.nan) - seconds)
    follows = (is_first | (gap < 1 + 0.5 * seconds)) & (done >= 0)
    done[~follows] = 0
    counted = np.zeros(len(probes), bool)
    for attempt in np.unique(attempts):
        (own,) = np.nonzero((attempts == attempt) & (done > 0))
        if len(own):
            counted[own[0] : own[-1] + 1] = True
    return done, counted & follows


def _between_steps(probes: list[Event], counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """From the first step to the last; all there is where no probe saw two of them. The probe in
    which steps began is left out if there were others before it: it saw the start as well."""
    attempts = _column(probes, "attempt")
    between = counted.copy()
    for attempt in np.unique(attempts[counted]):
        own = attempts == attempt
        first = int(np.argmax(own & counted))
        between[first] = not own[:first].any()
    return between if between.any() else (counted if counted.any() else np.ones(len(probes), bool))


def _series(probes: list[Event]) -> HostSeries:
    """Averages over groups of neighbours, so that a plot of days stays small."""
    group = max(1, math.ceil(len(probes) / _MOST_POINTS))
    cuts = np.arange(0, len(probes), group)
    seconds = _column(probes, "seconds")
    per_group = np.add.reduceat(seconds, cuts)

    def mean(values: Numbers) -> Numbers:
        averaged: Numbers = np.add.reduceat(values * seconds, cuts) / per_group
        return averaged

    times = _column(probes, "time")
    return HostSeries(
        hours=(times[cuts] - times[0] + seconds[0]) / 3600,
        cpu_share=mean(_column(probes, "cpu_share")),
        device_share=mean(_of_devices(probes, "utilisation", np.mean)),
        sent_bytes_per_second=mean(_column(probes, "sent_bytes") / seconds),
        received_bytes_per_second=mean(_column(probes, "received_bytes") / seconds),
    )


def _column(probes: list[Event], name: str) -> Numbers:
    return np.array([_number(probe.get(name)) for probe in probes], dtype=np.float64)


def _of_devices(probes: list[Event], name: str, join: Any) -> Numbers:
    values = [
        [v for d in _devices(probe) if isinstance(v := d.get(name), int | float)]
        for probe in probes
    ]
    return np.array([float(join(own)) if own else math.nan for own in values], dtype=np.float64)


def _devices(probe: Event) -> list[Event]:
    listed = probe.get("devices")
    return [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def _mean(values: Numbers, weights: Numbers) -> float:
    known = ~np.isnan(values)
    total = float(weights[known].sum())
    return float((values[known] * weights[known]).sum() / total) if total else math.nan


def _most(values: Numbers) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else math.nan


def _per(values: Numbers, count: float) -> float:
    return float(np.nansum(values)) / count if count and not np.isnan(values).all() else math.nan
