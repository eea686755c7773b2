"""The state of a run for monitoring, in the OpenMetrics text format. Pure: a run in, text out.

All are gauges: a restart takes steps back, and rates are those of the recent past. What is not
known is left out rather than zero.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.terminal import printable
from paceline.watch.live import RECENT_SECONDS, LiveRun, ratio

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_WINDOW = f"in the last {RECENT_SECONDS:.0f} s"
_HOST_VALUES = {
    "cpu_ratio": ("cpu_share", "Share of the host's cores that were busy"),
    "memory_bytes": ("memory_bytes", "Memory in use on the host"),
    "memory_total_bytes": ("memory_total_bytes", "Memory of the host"),
    "link_bits_per_second": ("link_bits_per_second", "Speed of the link that the run uses"),
}
_HOST_RATES = {
    "sent_bytes_per_second": ("sent_bytes", "Sent over the run's interface"),
    "received_bytes_per_second": ("received_bytes", "Received over the run's interface"),
    "disk_read_bytes_per_second": ("disk_read_bytes", "Read from disks"),
    "disk_written_bytes_per_second": ("disk_written_bytes", "Written to disks"),
}
_DEVICE_VALUES = {
    "utilisation_ratio": ("utilisation", "Share of the time in which the device was busy"),
    "memory_bytes": ("memory_bytes", "Memory in use on the device"),
    "power_watts": ("power_watts", "Power that the device draws"),
}

Labels = Mapping[str, object]


@dataclass(frozen=True)
class Metric:
    name: str
    meaning: str
    samples: Sequence[tuple[Labels, float | None]]
    type: str = "gauge"


def render_metrics(live: LiveRun) -> str:
    lines: list[str] = []
    for metric in [*_of_run(live), *_of_ranks(live), *_of_hosts(live), *_of_devices(live)]:
        lines += _lines(metric)
    return "\n".join([*lines, "# EOF"]) + "\n"


def _of_run(live: LiveRun) -> Iterator[Metric]:
    about = {
        "run": live.run.path.name or str(live.run.path),
        "workload": live.settings.get("workload", ""),
        "state": live.state(),
    }
    yield Metric("paceline_run", "What is trained, and its state", [(about, 1.0)], "info")
    yield _one("going_on", "1 while it is being trained or about to be", float(live.is_going_on()))
    yield _one("attempt", "How often it was started", float(live.attempt))
    yield _one("step", "The last step that was recorded", float(live.step))
    yield _one("steps_wanted", "Steps that it is to have", live.total_steps or None)
    yield _one("left_seconds", "Until the last step, at the present speed", live.seconds_left())
    yield _one(
        "last_event_timestamp_seconds", "When it last said something", live.last_time or None
    )
    yield _one("num_warnings", "Warnings so far", float(len(live.warnings)))
    steps = live.steps()
    last = steps[-1] if steps else {}
    unit = str(live.facts.get("unit", "unit"))
    yield _one("loss", "Mean training loss of the last log line", last.get("loss"))
    yield _one("learning_rate", "Of the last step", last.get("rate"))
    speed = [({"unit": unit}, last.get("units_per_second"))]
    yield Metric("paceline_units_per_second", "Throughput of the last log line", speed)
    yield _one(
        "step_seconds", "Mean length of a step in the last log line", last.get("step_seconds")
    )
    yield Metric("paceline_score", "The newest score of each split", list(_scores(live)))


def _one(name: str, meaning: str, value: float | None) -> Metric:
    return Metric(f"paceline_{name}", meaning, [({}, value)])


def _scores(live: LiveRun) -> Iterator[tuple[Labels, float | None]]:
    newest = {record["split"]: record for record in live.kept if record["kind"] == "score"}
    for split, record in newest.items():
        for name, value in record["scores"].items():
            yield {"split": split, "score": name}, value


def _of_ranks(live: LiveRun) -> Iterator[Metric]:
    steps: list[tuple[Labels, float | None]] = []
    shares: list[tuple[Labels, float | None]] = []
    for number, rank in sorted(live.ranks.items()):
        labels = {"rank": number, "host": rank.host}
        steps.append((labels, float(rank.step)))
        phases = rank.phases(live.last_time - RECENT_SECONDS)
        total = sum(phases.values())
        shares += [({**labels, "phase": n}, ratio(s, total)) for n, s in sorted(phases.items())]
    yield Metric("paceline_rank_step", "The last step of each process", steps)
    yield Metric("paceline_phase_ratio", f"Share of a process's time {_WINDOW}, by phase", shares)
    late = live.straggler()
    told = [({"rank": late.rank, "phase": late.phase}, late.share)] if late is not None else []
    meaning = f"Share of the time {_WINDOW} that the others waited for this process"
    yield Metric("paceline_straggler_ratio", meaning, told)


def _of_hosts(live: LiveRun) -> Iterator[Metric]:
    probes = [probe for _, probe in sorted(live.hosts.items())]
    for name, (field, meaning) in _HOST_VALUES.items():
        samples = [({"host": probe["host"]}, probe[field]) for probe in probes]
        yield Metric(f"paceline_host_{name}", meaning, samples)
    for name, (field, meaning) in _HOST_RATES.items():
        rates = [({"host": p["host"]}, ratio(p[field], p["seconds"])) for p in probes]
        yield Metric(f"paceline_host_{name}", meaning, rates)


def _of_devices(live: LiveRun) -> Iterator[Metric]:
    devices: list[tuple[Labels, dict[str, Any]]] = [
        ({"host": host, "device": number, "name": device["name"]}, device)
        for host, probe in sorted(live.hosts.items())
        for number, device in enumerate(probe["devices"])
    ]
    for name, (field, meaning) in _DEVICE_VALUES.items():
        samples = [(labels, device[field]) for labels, device in devices]
        yield Metric(f"paceline_device_{name}", meaning, samples)


def _lines(metric: Metric) -> Iterable[str]:
    known = [
        (labels, value)
        for labels, value in metric.samples
        if value is not None and math.isfinite(value)
    ]
    if not known:
        return
    yield f"# TYPE {metric.name} {metric.type}"
    yield f"# HELP {metric.name} {metric.meaning}."
    suffix = "_info" if metric.type == "info" else ""
    for labels, value in known:
        yield f"{metric.name}{suffix}{_labels(labels)} {value:.10g}"


def _labels(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_escape(str(value))}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escape(text: str) -> str:
    """Names come from events and directories: nothing in them may end a line or a value."""
    return (
        printable(text.replace("\t", " "))
        .replace("\\", r"\\")
        .replace('"', r"\"")
        .replace("\n", r"\n")
    )
