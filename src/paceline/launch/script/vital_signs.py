"""Where each process of a script on this host is: what it tells itself, and what the kernel tells.

A process that is observed writes a heartbeat (`observe/pulse.py`); one that is not, or not yet, is
judged by its processor time and its reading and writing alone. No torch.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from paceline.record.schema import START_UP

Message = dict[str, Any]

PULSES = "pulse-*.json"
STACKS_WANTED = "stacks-wanted"
"""A file that observed processes look for: newer than their last answer, it asks for stacks."""
_BUSY_SHARE = 0.2
"""Of a core: less than this is what waiting costs."""
_MOVED_BYTES = 200_000
_LOOK_AT_CHILDREN_SECONDS = 5.0
"""A process that stands still for so long may wait for one that it started."""
_PULSE_SECONDS = 5.0
"""A process that has not told for so long cannot run Python, or is not observed any more."""


@dataclass(frozen=True)
class Usage:
    at: float
    cpu_seconds: float
    num_bytes: int
    is_runnable: bool
    """On a machine that is full it may get little time and still be at work."""

    def has_moved_since(self, before: "Usage") -> bool:
        """Whether it computed, read or wrote more than one that waits does."""
        cpu_share = (self.cpu_seconds - before.cpu_seconds) / max(self.at - before.at, 1e-3)
        has_read = self.num_bytes - before.num_bytes > _MOVED_BYTES
        return cpu_share > _BUSY_SHARE or has_read or self.is_runnable


class VitalSigns:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._usage: dict[int, Usage] = {}
        self._children: dict[int, dict[int, Usage]] = {}
        self._moved: dict[int, float] = {}
        self._stopped: dict[int, float] = {}

    def beats(self) -> list[Message]:
        """Of every worker, by rank; of processes that no agent started, those that know theirs."""
        pulses = {beat["pid"]: beat for beat in _read_all(self._folder, PULSES)}
        workers = _read_all(self._folder, "worker-*.json")
        if not workers:
            workers = _workers_by_pulses(list(pulses.values()))
        found = [self._beat(worker, pulses.get(worker["pid"])) for worker in workers]
        return sorted(found, key=lambda beat: int(beat["rank"]))

    def pids(self) -> list[int]:
        return [int(w["pid"]) for w in _read_all(self._folder, "worker-*.json") if _lives(w)]

    def want_stacks(self) -> None:
        (self._folder / STACKS_WANTED).touch()

    def _beat(self, worker: Message, pulse: Message | None) -> Message:
        pid, code = int(worker["pid"]), worker["code"]
        beat = {"phase": START_UP, "step": 0, "collective": None, **(pulse or {})}
        beat |= {"rank": int(worker["rank"]), "pid": pid, "stop_asked": False}
        if code is not None or not psutil.pid_exists(pid):
            how = "gone" if code is None else f"exit code {code}"
            return {**beat, "ended": how, "quiet_seconds": 0.0}
        idle_seconds = self._idle_seconds(pid)
        is_observed = pulse is not None
        silent = float(pulse["age"]) if pulse else 0.0
        quiet = idle_seconds
        if pulse is not None and silent < _PULSE_SECONDS:
            told = float(pulse["quiet_seconds"]) + silent
            quiet = told if beat["collective"] else min(told, idle_seconds)
        return {
            **beat,
            "ended": None,
            "is_observed": is_observed,
            "quiet_seconds": round(quiet, 3),
            "silent_seconds": round(min(silent, idle_seconds), 3),
            "stopped_seconds": round(self._stopped_seconds(pid), 3),
        }

    def _idle_seconds(self, pid: int) -> float:
        """Since it last moved."""
        now, before = _usage_of(pid), self._usage.get(pid)
        if now is None:
            return 0.0
        if before is None:
            self._usage[pid], self._moved[pid] = now, now.at
        elif now.at - before.at >= 1.0:
            is_still = now.at - self._moved[pid] > _LOOK_AT_CHILDREN_SECONDS
            if now.has_moved_since(before) or (is_still and self._have_children_moved(pid)):
                self._moved[pid] = now.at
            self._usage[pid] = now
        return now.at - self._moved[pid]

    def _have_children_moved(self, pid: int) -> bool:
        """A compiler that the process waits for, a loader's worker that takes its time."""
        found = {child: usage for child in _children(pid) if (usage := _usage_of(child))}
        before, self._children[pid] = self._children.get(pid, {}), found
        return any(found[c].has_moved_since(before[c]) for c in found if c in before)

    def _stopped_seconds(self, pid: int) -> float:
        try:
            is_stopped = psutil.Process(pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            is_stopped = False
        if not is_stopped:
            self._stopped.pop(pid, None)
            return 0.0
        return time.monotonic() - self._stopped.setdefault(pid, time.monotonic())


def _workers_by_pulses(pulses: list[Message]) -> list[Message]:
    """Where no agent tells who its workers are: of each rank the process that is most surely one,
    for helpers that a worker starts have its variables too."""
    chosen: dict[int, Message] = {}
    for beat in sorted(pulses, key=lambda beat: (beat["has_group"], beat["step"])):
        chosen[int(beat["rank"])] = beat
    return [{"rank": rank, "pid": beat["pid"], "code": None} for rank, beat in chosen.items()]


def _usage_of(pid: int) -> Usage | None:
    try:
        process = psutil.Process(pid)
        times, status = process.cpu_times(), process.status()
        transfers = process.io_counters() if hasattr(process, "io_counters") else None
    except psutil.Error:
        return None
    num_bytes = transfers.read_chars + transfers.write_chars if transfers else 0
    is_runnable = status == psutil.STATUS_RUNNING
    return Usage(time.monotonic(), times.user + times.system, int(num_bytes), is_runnable)


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _read_all(folder: Path, pattern: str) -> list[Message]:
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append({**content, "age": max(time.time() - path.stat().st_mtime, 0.0)})
        except (OSError, ValueError):
            continue
    return found


def _lives(worker: Message) -> bool:
    return worker["code"] is None and psutil.pid_exists(int(worker["pid"]))
