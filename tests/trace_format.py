"""What a viewer expects of the Trace Event Format: checked rule by rule, without a viewer."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NEEDED = {
    "X": ("pid", "tid", "ts", "dur", "name"),
    "i": ("pid", "tid", "ts", "name", "s"),
    "C": ("pid", "ts", "name", "args"),
    "M": ("pid", "name", "args"),
}


@dataclass(frozen=True)
class Trace:
    events: list[dict[str, Any]]
    about: dict[str, Any]
    processes: dict[int, str]
    threads: dict[tuple[int, int], str]

    def slices(self, process: str, thread: str) -> list[dict[str, Any]]:
        """Of the tracks whose names begin so, by time."""
        found = [
            event
            for event in self.events
            if event["ph"] == "X"
            and self.processes[event["pid"]].startswith(process)
            and self.threads[event["pid"], event["tid"]].startswith(thread)
        ]
        return sorted(found, key=lambda event: (event["ts"], -event["dur"]))


def open_trace(path: Path) -> Trace:
    """As a viewer would: every event complete, every process named, slices of a track nested."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    told = json.loads(text, parse_constant=_refuse)
    events = told["traceEvents"]
    names: dict[str, dict[Any, str]] = {"process_name": {}, "thread_name": {}}
    for event in events:
        missing = [name for name in _NEEDED[event["ph"]] if name not in event]
        assert not missing, (missing, event)
        if event["ph"] == "M" and event["name"] in names:
            of_thread = event["name"] == "thread_name"
            whose = (event["pid"], event["tid"]) if of_thread else event["pid"]
            names[event["name"]][whose] = event["args"]["name"]
    trace = Trace(events, told["otherData"], names["process_name"], names["thread_name"])
    _check(trace)
    return trace


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _check(trace: Trace) -> None:
    tracks: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in trace.events:
        assert event["pid"] in trace.processes, event
        if event["ph"] != "M":
            assert isinstance(event["ts"], int) and event["ts"] >= 0, event
        if event["ph"] == "X":
            assert event["dur"] >= 0
            end = event["ts"] + event["dur"]
            tracks[event["pid"], event["tid"]].append((event["ts"], end))
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values()), event
    for track, slices in tracks.items():
        assert track in trace.threads
        _check_nesting(sorted(slices, key=lambda slice: (slice[0], -slice[1])))


def _check_nesting(slices: list[tuple[float, float]]) -> None:
    """A slice ends before the one ends in which it began; else a viewer drops or moves it."""
    open_ends: list[float] = []
    for start, end in slices:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], (start, end, open_ends[-1])
        open_ends.append(end)
