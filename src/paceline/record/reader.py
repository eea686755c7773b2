"""Reading a run directory back: attempts joined into one story, lost work told apart.

Readers never fail on a run that was killed: a torn line is skipped, a missing file is empty.
"""

import fcntl
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.record.schema import RESTART, SHUT_DOWN, START_UP, UNEXPLAINED, RunDirectory

Event = dict[str, Any]


def read_events(path: Path) -> list[Event]:
    """Every whole line. A process killed while writing leaves half a line, which says nothing."""
    if not path.is_file():
        return []
    events = []
    with path.open("rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and {"kind", "attempt", "time"} <= event.keys():
                events.append(event)
    return events


@dataclass(frozen=True)
class Attempt:
    number: int
    started: float | None
    ended: float
    exit_code: int | None
    """None when the launcher was killed and could not say, or is still running."""
    booked_seconds: float
    """What its events booked to phases, by a clock that nobody can set."""
    seconds_after: float
    """From the last event with phases to the last sign of life."""
    has_end: bool
    """It left the loop and said so."""

    @property
    def wall_seconds(self) -> float:
        passed = self.ended - self.started if self.started is not None else 0.0
        return max(passed, self.booked_seconds)


@dataclass(frozen=True)
class Story:
    """What happened, as one line of events without what was lost and done again."""

    events: list[Event]
    lost: list[Event]
    phases: dict[str, float]
    attempts: list[Attempt]

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def wall_seconds(self) -> float:
        return sum(attempt.wall_seconds for attempt in self.attempts)


def require_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    if not run.exists():
        raise UserError(f"{path} is not a run directory", "give the --run of a `paceline train`")
    return run


def read_story(run: RunDirectory, rank: int = 0) -> Story:
    require_run(run.path)
    events = read_events(run.rank_events(rank))
    launcher = read_events(run.launcher_events)
    kept, lost = drop_lost(events)
    attempts = join_attempts(events, launcher)
    return Story(kept, lost, total_phases(kept, lost, attempts), attempts)


def is_being_trained(run: RunDirectory) -> bool | None:
    """Whether a launcher holds the run's lock; None where that cannot be known."""
    try:
        with run.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def total_cpu_seconds(run: RunDirectory) -> float:
    """Processor time of all processes and attempts, lost work included."""
    files = sorted(run.events.glob("rank-*.jsonl"))
    return float(sum(event.get("cpu_seconds", 0.0) for f in files for event in read_events(f)))


def drop_lost(
    events: Iterable[Event], limits: dict[int, float] | None = None
) -> tuple[list[Event], list[Event]]:
    """Split off what a later attempt did again because it began before it; warnings stay."""
    ordered = list(events)
    limits = cutoffs(ordered) if limits is None else limits
    kept: list[Event] = []
    lost: list[Event] = []
    for event in ordered:
        may_be_lost = event["kind"] not in ("begin", "warning")
        redone = may_be_lost and event.get("step", 0) > limits[event["attempt"]]
        (lost if redone else kept).append(event)
    return kept, lost


def cutoffs(events: list[Event]) -> dict[int, float]:
    """For each attempt the earliest step from which a later one began."""
    begins = {event["attempt"]: event["step"] for event in events if event["kind"] == "begin"}
    limits: dict[int, float] = {}
    earliest = float("inf")
    for attempt in sorted({event["attempt"] for event in events}, reverse=True):
        limits[attempt] = earliest
        earliest = min(earliest, begins.get(attempt, float("inf")))
    return limits


def join_attempts(events: list[Event], launcher: list[Event]) -> list[Attempt]:
    numbers = sorted({event["attempt"] for event in [*events, *launcher]})
    return [_attempt(number, events, launcher) for number in numbers]


def _attempt(number: int, events: list[Event], launcher: list[Event]) -> Attempt:
    own = [event for event in events if event["attempt"] == number]
    launched = [event for event in launcher if event["attempt"] == number]
    begin = next((event for event in own if event["kind"] == "begin"), None)
    started = next((e["started"] for e in launched if e["kind"] == "launch"), None)
    if started is None and begin is not None:
        started = begin["time"] - begin["seconds"]
    exits = [event for event in launched if event["kind"] == "exit"]
    booking = [event for event in own if "phases" in event]
    ended = max(event["time"] for event in [*own, *launched])
    heard = max((event["time"] for event in booking), default=ended)
    return Attempt(
        number=number,
        started=started,
        ended=ended,
        exit_code=exits[-1]["code"] if exits else None,
        booked_seconds=sum(sum(event["phases"].values()) for event in booking),
        seconds_after=ended - heard,
        has_end=any(event["kind"] == "end" for event in own),
    )


def total_phases(kept: list[Event], lost: list[Event], attempts: list[Attempt]) -> dict[str, float]:
    """Seconds per phase over all attempts, which add up to their wall time.

    The work of lost steps is one phase of its own, and so is what no event accounts for.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for event in kept:
        for name, seconds in event.get("phases", {}).items():
            totals[name] += seconds
    for event in lost:
        totals[RESTART] += sum(event.get("phases", {}).values())
    for attempt in attempts:
        for name, seconds in _unbooked(attempt).items():
            totals[name] += seconds
    return {name: seconds for name, seconds in totals.items() if seconds}


def _unbooked(attempt: Attempt) -> dict[str, float]:
    """The wall time of an attempt that none of its events booked to a phase."""
    missing = attempt.wall_seconds - attempt.booked_seconds
    if not attempt.booked_seconds:
        return {START_UP: missing}  # it never reached the loop
    after = min(attempt.seconds_after, missing) if attempt.has_end else 0.0
    return {SHUT_DOWN: after, UNEXPLAINED: missing - after}
