"""The picture of a run, kept up to date from its events. Plain data; drawn elsewhere.

Events may be incomplete, foreign or from an older version: what an event lacks is left out, and one
that makes no sense is dropped.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.recipe import settings_of_run
from paceline.record.directory import is_being_trained, refuse_newer
from paceline.record.events import Event
from paceline.record.schema import RunDirectory
from paceline.report.facts.stragglers import Straggler, find_straggler
from paceline.report.facts.world_times import Interval, times_of_intervals
from paceline.watch.tail import RunTail

RECENT_SECONDS = 60.0
_NUM_RECENT = 200
_NUM_WARNINGS = 200
_SILENT_SECONDS = 60.0

_HOST_NUMBERS = (
    "seconds",
    "cpu_share",
    "memory_bytes",
    "memory_total_bytes",
    "link_bits_per_second",
    "sent_bytes",
    "received_bytes",
    "disk_read_bytes",
    "disk_written_bytes",
)
_DEVICE_NUMBERS = ("utilisation", "memory_bytes", "memory_total_bytes", "power_watts")

Record = dict[str, Any]


@dataclass
class Rank:
    """One process: where it runs, and its last intervals."""

    number: int
    host: str = ""
    step: int = 0
    recent: deque[tuple[float, float, dict[str, float]]] = field(
        default_factory=lambda: deque(maxlen=_NUM_RECENT)
    )
    """(time, seconds, phases)"""
    intervals: deque[tuple[float, Interval]] = field(
        default_factory=lambda: deque(maxlen=_NUM_RECENT)
    )
    """What it did in its last lines of steps, with their times."""

    def phases(self, since: float) -> dict[str, float]:
        """Seconds by phase in the intervals that ended since then; in the last one at least."""
        chosen = [entry for entry in self.recent if entry[0] >= since] or list(self.recent)[-1:]
        sums: dict[str, float] = {}
        for _, _, phases in chosen:
            for name, seconds in phases.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return sums


def open_run(path: Path) -> "LiveRun":
    """A run, or an empty directory that is going to be one."""
    if not RunDirectory(path).exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(
            f"{path} is not a run directory",
            "give the --run of a `paceline train` or `paceline run`",
        )
    refuse_newer(RunDirectory(path))
    live = LiveRun(path)
    live.update()
    return live


class LiveRun:
    """`update` reads what is new. `records` only grows, so a page asks for what it lacks."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)
        self._tail = RunTail(self.run.events)
        self.settings = self._read_settings()
        self.facts: Event = {}
        self.records: list[Record] = []
        """Steps of rank 0, scores, probes, saves, and `cut` where an attempt began anew."""
        self.kept: list[Record] = []
        """The same without what was lost and done again."""
        self.ranks: dict[int, Rank] = {}
        self.hosts: dict[str, Record] = {}
        """The last probe of each; what it lacks is None."""
        self.warnings: deque[Record] = deque(maxlen=_NUM_WARNINGS)
        self.attempt = 0
        self.last_time = 0.0
        self._ended: dict[int, str] = {}

    def _read_settings(self) -> dict[str, Any]:
        try:
            return settings_of_run(self.run)
        except UserError:
            return {}  # a directory whose recipe is about to be written

    def update(self) -> None:
        self.settings = self.settings or self._read_settings()
        for name, event in self._tail.read_new():
            try:
                self._take(name, event)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                continue

    def _take(self, name: str, event: Event) -> None:
        event = {**event, "time": _required(event["time"]), "attempt": int(event["attempt"])}
        self.last_time = max(self.last_time, event["time"])
        self.attempt = max(self.attempt, event["attempt"])
        if name.startswith("rank-"):
            self._take_of_rank(int(name.removeprefix("rank-")), event)
        elif name.startswith("host-") and event["kind"] == "probe":
            self._take_probe(event)
        elif name == "launcher" and event["kind"] == "exit":
            code = int(event["code"])
            ended = f"failed (exit code {code})" if code else "finished"
            self._ended.setdefault(event["attempt"], ended)

    def _take_of_rank(self, number: int, event: Event) -> None:
        rank = self.ranks.setdefault(number, Rank(number))
        kind = event["kind"]
        if kind == "begin":
            rank.host, rank.step = str(event.get("host", "")), int(event["step"])
            rank.recent.clear()
            rank.intervals.clear()
        if kind == "steps":
            rank.step = int(event["step"])
        if kind in ("steps", "end"):
            seconds, phases = _number(event.get("seconds")) or 0.0, _phases(event)
            rank.recent.append((event["time"], seconds, phases))
        if kind == "steps" and (num_steps := event.get("num_steps")):
            rank.intervals.append((event["time"], Interval(rank.step, num_steps, phases)))
        if kind == "warning":
            told = {"time": event["time"], "rank": number, "text": str(event["text"])}
            self.warnings.append(told)
            self._add({"kind": "warning", **told})
        if number == 0:
            self._take_of_first(event)

    def _take_of_first(self, event: Event) -> None:
        kind = event["kind"]
        if kind == "begin":
            self.facts = event
            self._add({"kind": "cut", "step": int(event["step"]), "time": event["time"]})
        elif kind == "steps":
            self._add(_step_record(event))
        elif kind == "score":
            values = {str(n): _number(v) for n, v in event["scores"].items()}
            split, step = str(event["split"]), int(event["step"])
            told = {"kind": kind, "step": step, "split": split, "scores": values}
            self._add({**told, "time": event["time"]})
        elif kind == "checkpoint":
            self._add({"kind": kind, "step": int(event["step"]), "time": event["time"]})
        elif kind == "end" and event.get("reason") == "failed":
            self._ended.setdefault(event["attempt"], "failed")  # the launcher may know how
        elif kind == "end":
            self._ended[event["attempt"]] = str(event.get("reason", "ended"))

    def _take_probe(self, event: Event) -> None:
        probe = _probe(event)
        self.hosts[probe["host"]] = probe
        self._add(_probe_record(probe))

    def _add(self, record: Record) -> None:
        self.records.append(record)
        if record["kind"] == "cut":
            step = record["step"]
            self.kept = [r for r in self.kept if _stays(r) or r["step"] <= step]
        else:
            self.kept.append(record)

    @property
    def total_steps(self) -> int:
        return int(_number(self.settings.get("steps")) or 0)

    @property
    def step(self) -> int:
        return self.ranks[0].step if 0 in self.ranks else 0

    def state(self) -> str:
        """In one word or a few; a run that says nothing is not called running."""
        if self.attempt in self._ended:
            return self._ended[self.attempt]
        if is_being_trained(self.run):
            return "running" if self.ranks else "starting"
        if not self.last_time:
            return "not started"
        is_recent = time.time() - self.last_time < _SILENT_SECONDS
        return "running" if is_recent and self.step < self.total_steps else "silent"

    def is_going_on(self) -> bool:
        return self.state() in ("running", "starting", "not started")

    def steps_per_second(self) -> float:
        """Over the recent past, with evaluations and saves."""
        steps = self.steps()[-_NUM_RECENT:]
        since = steps[-1]["time"] - RECENT_SECONDS if steps else 0.0
        recent = [record for record in steps if record["time"] >= since]
        chosen = recent if len(recent) > 1 else steps[-2:]
        seconds = sum(record["seconds"] for record in chosen)
        return sum(r["num_steps"] for r in chosen) / seconds if seconds > 0 else 0.0

    def seconds_left(self) -> float | None:
        speed = self.steps_per_second()
        if self.state() != "running" or not speed:
            return None
        return max(self.total_steps - self.step, 0) / speed

    def steps(self) -> list[Record]:
        """Rank 0's intervals."""
        return [record for record in self.kept if record["kind"] == "steps"]

    def scores(self, split: str = "validation") -> list[Record]:
        return [r for r in self.kept if r["kind"] == "score" and r["split"] == split]

    def straggler(self) -> Straggler | None:
        """Judged as the report judges the whole run, from the recent past; out of step nobody waits
        for one who is slow."""
        strategy = self.settings.get("strategy")
        if isinstance(strategy, dict) and strategy.get("mode", "sync") != "sync":
            return None
        since = self.last_time - RECENT_SECONDS
        recent = {
            n: [interval for time, interval in rank.intervals if time >= since]
            for n, rank in self.ranks.items()
        }
        times = times_of_intervals(recent, {n: rank.host for n, rank in self.ranks.items()})
        return find_straggler(times) if times is not None else None


def _stays(record: Record) -> bool:
    """What a restart does not take back."""
    return record["kind"] in ("probe", "warning")


def _step_record(event: Event) -> Record:
    seconds = _number(event.get("seconds")) or 0.0
    num_steps = int(_number(event.get("num_steps")) or 0)
    listed = [_number(one) for one in _list(event.get("step_seconds"))]
    own = [one for one in listed if one is not None]
    num_units = _number(event.get("num_units")) or 0.0
    return {
        "kind": "steps",
        "step": int(event["step"]),
        "time": event["time"],
        "num_steps": num_steps,
        "seconds": seconds,
        "loss": _number(event.get("loss")),
        "rate": _number(event.get("rate")),
        "units_per_second": num_units / max(sum(own) or seconds, 1e-9),
        "step_seconds": sum(own) / len(own) if own else seconds / max(num_steps, 1),
        "phases": _phases(event),
    }


def _number(value: Any) -> float | None:
    """None for what is missing, no number or not finite: JSON as browsers read it has no NaN."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _required(value: Any) -> float:
    number = _number(value)
    if number is None:
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _phases(event: Event) -> dict[str, float]:
    """Seconds by phase, without what cannot be a duration."""
    told = event.get("phases")
    known = {str(n): _number(s) for n, s in told.items()} if isinstance(told, dict) else {}
    return {
        name: seconds for name, seconds in known.items() if seconds is not None and seconds >= 0
    }


def _probe(event: Event) -> Record:
    """What a probe may hold, complete: values that it lacks are None."""
    devices = [device for device in _list(event.get("devices")) if isinstance(device, dict)]
    return {
        "host": str(event["host"]),
        "time": event["time"],
        "interface": str(event.get("interface") or ""),
        **{name: _number(event.get(name)) for name in _HOST_NUMBERS},
        "devices": [
            {
                "name": str(device.get("name") or "device"),
                **{name: _number(device.get(name)) for name in _DEVICE_NUMBERS},
            }
            for device in devices
        ],
    }


def _probe_record(probe: Record) -> Record:
    used = [device["utilisation"] for device in probe["devices"]]
    known = [share for share in used if share is not None]
    return {
        "kind": "probe",
        "host": probe["host"],
        "time": probe["time"],
        "cpu_share": probe["cpu_share"],
        "memory_share": ratio(probe["memory_bytes"], probe["memory_total_bytes"]),
        "device_share": sum(known) / len(known) if known else None,
        "sent_per_second": ratio(probe["sent_bytes"], probe["seconds"]),
        "received_per_second": ratio(probe["received_bytes"], probe["seconds"]),
        "disk_per_second": ratio(
            _sum_of(probe["disk_read_bytes"], probe["disk_written_bytes"]), probe["seconds"]
        ),
    }


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where one of the two is not known, or there is nothing to divide by."""
    return part / whole if part is not None and whole else None


def _sum_of(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
