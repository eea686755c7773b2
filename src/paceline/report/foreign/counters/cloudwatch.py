"""CloudWatch's JSON, as `aws cloudwatch get-metric-statistics` and `get-metric-data` print it.

The traps are in the units. NetworkOut counts the bytes of one sample, and a sample is one minute
with detailed monitoring and five without. `Sum` over a period is bytes in all cases; `Average` is
bytes per sample, whose length the file does not tell unless the period is a minute.
"""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from paceline.report.foreign.counters.counters import CPU, DEVICE, RECEIVED, SENT, Counters
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import number

TOOL = "CloudWatch"
_LARGEST_BYTES = 32 << 20
_METRICS = {
    "CPUUtilization": CPU,
    "NetworkIn": RECEIVED,
    "NetworkOut": SENT,
    "GPUUtilization": DEVICE,
    "nvidia_smi_utilization_gpu": DEVICE,
}
_RATES = {
    "Bytes/Second": 1.0,
    "Kilobytes/Second": 1e3,
    "Megabytes/Second": 1e6,
    "Gigabytes/Second": 1e9,
    "Bits/Second": 1 / 8,
    "Kilobits/Second": 1e3 / 8,
    "Megabits/Second": 1e6 / 8,
    "Gigabits/Second": 1e9 / 8,
}
_AMOUNTS = {name.removesuffix("/Second"): scale for name, scale in _RATES.items()}


def recognises_file(path: Path) -> bool:
    if path.suffix != ".json" or path.stat().st_size > _LARGEST_BYTES:
        return False
    begin = path.read_bytes()[:65536]
    return b'"Datapoints"' in begin or b'"MetricDataResults"' in begin


def read(path: Path) -> list[Counters]:
    try:
        given = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return []
    counters = Counters(path.stem, TOOL)
    for label, points in _series(given):
        what = next((w for name, w in _METRICS.items() if name in label), None)
        if what is not None:
            _add(counters, what, label, points)
    return [counters] if counters.samples or counters.notes else []


def _series(given: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    """A name and its points, each with a time and one or several statistics."""
    found = []
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, dict):
            continue
        if isinstance(one.get("Datapoints"), list):
            points = [p for p in one["Datapoints"] if isinstance(p, dict)]
            found.append((str(one.get("Label", "")), points))
        for result in one.get("MetricDataResults") or []:
            label = f"{result.get('Label', '')} {result.get('Id', '')}"
            stat = "Sum" if "sum" in label.lower() else "Average"
            pairs = zip(result.get("Timestamps") or [], result.get("Values") or [], strict=False)
            found.append((label, [{"Timestamp": t, stat: v} for t, v in pairs]))
    return found


def _add(counters: Counters, what: str, label: str, points: list[dict[str, Any]]) -> None:
    timed = [(t, p) for p in points if (t := _time(p.get("Timestamp"))) is not None]
    timed.sort(key=lambda one: one[0])
    period = _period([time for time, _ in timed])
    counters.period_seconds = counters.period_seconds or period
    is_share = what in (CPU, DEVICE)
    for time, point in timed:
        value = _share(point) if is_share else _rate(point, period)
        if value is not None:
            counters.add(what, time, value)
    if timed and what not in counters.samples and is_share:
        counters.notes.append(f"'{label.strip()}' has no Average: ask for --statistics Average")
    elif timed and what not in counters.samples:
        counters.notes.append(
            f"'{label.strip()}' is the average of samples whose length is not told (one minute or "
            "five), so its bytes per second are not known: ask for --statistics Sum"
        )


def _time(given: Any) -> float | None:
    value = number(given)
    return value if value is not None else stamp_of(str(given))


def _period(times: list[float]) -> float | None:
    gaps = [b - a for a, b in pairwise(times) if b > a]
    return median(gaps) if gaps else None


def _share(point: dict[str, Any]) -> float | None:
    value = number(point.get("Average"))
    return value / 100 if value is not None else None


def _rate(point: dict[str, Any], period: float | None) -> float | None:
    """Bytes a second."""
    unit = str(point.get("Unit", "Bytes"))
    average, total, count = (number(point.get(k)) for k in ("Average", "Sum", "SampleCount"))
    if unit in _RATES:
        return average * _RATES[unit] if average is not None else None
    if unit not in _AMOUNTS or not period:
        return None
    if total is None and average is not None and count:
        total = average * count
    if total is None and average is not None and period <= 60:
        total = average
    return total * _AMOUNTS[unit] / period if total is not None else None
