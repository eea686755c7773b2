"""Hosts on their way into a round: what each is doing, and for how long that is waited for.

The agent writes its stage into a small file, the supervisor sends it on with a sign of whether
anything moves, and the launcher judges. torchrun's own timeout knows nothing of all that: it ended
the round of fifteen hosts because the sixteenth read torch from slow storage.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import psutil

from paceline.units import format_seconds

WAITING = "waiting for the other hosts"
STARTING = "its workers start"
_STAGE_FILE = "stage.json"
_STILL_TIMES = 5.0
"""How many times `guard.join_seconds` a host may take without a sign of progress."""
_MOST_TIMES = 20.0
"""And how many times with one."""


def write_stage(folder: Path, text: str) -> None:
    """What this host's agent does from now on."""
    (folder / _STAGE_FILE).write_text(json.dumps(text), encoding="utf-8")


def importing(module: str) -> str:
    spec = PathFinder.find_spec(module)
    where = f" from {Path(spec.origin).parent}" if spec and spec.origin else ""
    return f"importing {module}{where}"


class StageWatch:
    """On a host, from the start of its agent until all its workers tell where they are."""

    def __init__(self, folder: Path, agent_pid: int) -> None:
        self._folder, self._pid = folder, agent_pid
        self._stage, self._since = "", time.monotonic()
        self._sign, self._moved = 0.0, time.monotonic()

    def look(self) -> dict[str, Any]:
        """The present stage, since when, and how long nothing has moved there."""
        processes = self._processes()
        stage, sign = self._read_stage(), sum(map(_work_of, processes))
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._since, self._moved = stage, now, now
        if sign > self._sign:
            self._sign, self._moved = sign, now
        return {"text": stage, "seconds": now - self._since, "idle_seconds": now - self._moved}

    def _processes(self) -> list[psutil.Process]:
        try:
            agent = psutil.Process(self._pid)
            return [agent, *agent.children(recursive=True)]
        except psutil.Error:
            return []

    def _read_stage(self) -> str:
        try:
            return str(json.loads((self._folder / _STAGE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return f"starting {sys.executable}"


def _work_of(process: psutil.Process) -> float:
    """Grows while the process computes or reads."""
    try:
        times, transfers = process.cpu_times(), process.io_counters()
    except (psutil.Error, AttributeError):
        return 0.0
    return float(times.user + times.system + transfers.read_bytes / 1e6)


@dataclass(frozen=True)
class HostStage:
    """A host whose workers do not all tell yet where they are."""

    host: str
    text: str
    seconds: float
    """In this stage."""
    idle_seconds: float
    """Since anything moved there."""

    @classmethod
    def of(cls, host: str, told: dict[str, Any] | None, waited_seconds: float) -> "HostStage":
        if told is None:
            return cls(host, "no word from it yet", waited_seconds, waited_seconds)
        return cls(host, told["text"], told["seconds"], told["idle_seconds"])

    @property
    def is_waiting(self) -> bool:
        return self.text == WAITING

    def __str__(self) -> str:
        return f"{self.host}: {self.text}, for {format_seconds(self.seconds)}"


@dataclass(frozen=True)
class Patience:
    """The end of it: who has not joined, and in words why that is no longer waited for."""

    hosts: tuple[str, ...]
    text: str


def late_hosts(stages: Sequence[HostStage]) -> list[HostStage]:
    """Whom the others wait for; where all wait for each other, all of them."""
    return [stage for stage in stages if not stage.is_waiting] or list(stages)


def find_end_of_patience(
    stages: Sequence[HostStage], waited_seconds: float, join_seconds: float
) -> Patience | None:
    """Hosts that are alive are waited for as long as something moves there, within bounds."""
    late = late_hosts(stages)
    still = [stage for stage in late if stage.idle_seconds > _STILL_TIMES * join_seconds]
    if still:
        shown = "; ".join(map(str, still))
        longest = format_seconds(max(stage.idle_seconds for stage in still))
        return _patience(still, f"not joined, and no progress for {longest} ({shown})")
    if waited_seconds > _MOST_TIMES * join_seconds:
        shown = "; ".join(map(str, late))
        waited = format_seconds(waited_seconds)
        return _patience(late, f"not joined within {waited} ({shown})")
    return None


def _patience(hosts: Sequence[HostStage], why: str) -> Patience:
    names = tuple(stage.host for stage in hosts)
    remedy = "put the Python environment on a local disk, or raise guard.join_seconds"
    return Patience(names, f"{', '.join(names)} {why}; {remedy}")


class LateNews:
    """Says who is waited for: after `join_seconds`, and then each time as long again."""

    def __init__(self, join_seconds: float) -> None:
        self._next = join_seconds

    def about(self, stages: Sequence[HostStage], waited_seconds: float) -> str | None:
        if waited_seconds < self._next:
            return None
        self._next = 2 * waited_seconds
        shown = "; ".join(map(str, late_hosts(stages)))
        return f"waiting for hosts to join since {format_seconds(waited_seconds)}: {shown}"
