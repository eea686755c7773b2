"""Reading a run directory back: attempts joined into one story, lost work told apart.

Readers never fail on a run that was killed: a torn line is skipped, a missing file is empty.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.record.schema import RESTART, SHUT_DOWN, START_UP, RunDirectory

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
            if isinstance(event, dict) and "kind" in event and "attempt" in event:
                events.append(event)
    return events


@dataclass(frozen=True)
class Attempt:
    number: int
    started: float | None
    ended: float
    exit_code: int | None
    """None when the launcher was killed and could not say."""

    @property
    def wall_seconds(self) -> float:
        return max(self.ended - self.started, 0.0) if self.started is not None else 0.0


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


def drop_lost(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """Split off the steps that a later attempt did again because it began before them."""
    ordered = list(events)
    cutoffs = _cutoffs(ordered)
    kept: list[Event] = []
    lost: list[Event] = []
    for event in ordered:
        redone = event["kind"] != "begin" and event.get("step", 0) > cutoffs[event["attempt"]]
        (lost if redone else kept).append(event)
    return kept, lost


def _cutoffs(events: list[Event]) -> dict[int, float]:
    """For each attempt the earliest step from which a later one began."""
    begins = {event["attempt"]: event["step"] for event in events if event["kind"] == "begin"}
    cutoffs: dict[int, float] = {}
    earliest = float("inf")
    for attempt in sorted({event["attempt"] for event in events}, reverse=True):
        cutoffs[attempt] = earliest
        earliest = min(earliest, begins.get(attempt, float("inf")))
    return cutoffs


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
    return Attempt(
        number, started, max(event["time"] for event in [*own, *launched]),
        exits[-1]["code"] if exits else None,
    )  # fmt: skip


def total_phases(kept: list[Event], lost: list[Event], attempts: list[Attempt]) -> dict[str, float]:
    """Seconds per phase over all attempts; the work of lost steps is one phase of its own."""
    totals: defaultdict[str, float] = defaultdict(float)
    for event in kept:
        for name, seconds in event.get("phases", {}).items():
            totals[name] += seconds
    for event in lost:
        totals[RESTART] += sum(event.get("phases", {}).values())
    last_heard = {event["attempt"]: event["time"] for event in [*kept, *lost] if "phases" in event}
    for attempt in attempts:
        if attempt.number not in last_heard:
            totals[START_UP] += attempt.wall_seconds  # it never reached the loop
        elif attempt.exit_code is not None:
            totals[SHUT_DOWN] += max(attempt.ended - last_heard[attempt.number], 0.0)
    return dict(totals)
