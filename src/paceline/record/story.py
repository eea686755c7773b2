"""What happened over all attempts of a run: joined into one story, lost work told apart."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from paceline.record.clock_jumps import Jump, find_jumps, without_jumps
from paceline.record.columns import RankRecord, StepColumns, lost_rows
from paceline.record.directory import require_run
from paceline.record.events import Event, read_events
from paceline.record.schema import (
    PHASES,
    RESTART,
    SHUT_DOWN,
    START_UP,
    UNEXPLAINED,
    RunDirectory,
)


@dataclass(frozen=True)
class Attempt:
    number: int
    started: float | None
    ended: float
    exit_code: int | None
    """None when the launcher was killed and could not say, or is still running."""
    booked_seconds: float
    """What its events booked to phases, by a monotonic clock."""
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


def read_story(run: RunDirectory, rank: int = 0) -> Story:
    require_run(run.path)
    events = read_events(run.rank_events(rank))
    return _story(events, read_events(run.launcher_events), cutoffs(events))


def _story(events: list[Event], launcher: list[Event], limits: dict[int, float]) -> Story:
    kept, lost = drop_lost(events, limits)
    attempts = join_attempts(events, launcher)
    return Story(kept, lost, total_phases(kept, lost, attempts), attempts)


@dataclass(frozen=True)
class LongStory:
    story: Story
    """Its `steps` events are sums over all rows of an attempt."""
    kept: StepColumns
    lost: StepColumns
    cutoffs: dict[int, float]
    """For each attempt the last step that no later attempt did again."""
    jumps: list[Jump]
    """Where the clock on the wall moved and the run's own did not."""


def join_story(record: RankRecord, launcher: list[Event]) -> LongStory:
    """The story of a run from one rank's record, without making an event of every row."""
    jumps = find_jumps(record)
    if jumps:
        record, launcher = without_jumps(record, launcher, jumps)
    numbers = {int(number) for number in np.unique(record.steps["attempt"])}
    marks = [{"kind": "mark", "attempt": number} for number in numbers]
    limits = cutoffs([*record.events, *marks])
    is_lost = lost_rows(record.steps, limits)
    kept, lost = record.steps.where(~is_lost), record.steps.where(is_lost)
    events = [*record.events, *_sums(kept), *_sums(lost)]
    return LongStory(_story(events, launcher, limits), kept, lost, limits, jumps)


def _sums(steps: StepColumns) -> list[Event]:
    """One event for all rows of an attempt, for what only needs sums and last times."""
    found = []
    for number in np.unique(steps["attempt"]).tolist():
        own = steps.where(steps["attempt"] == number)
        totals = own.phases.sum(axis=0)
        found.append(
            {
                "kind": "steps",
                "attempt": int(number),
                "time": float(own["time"].max()),
                "step": int(own["step"].max()),
                "num_steps": int(own.total("num_steps")),
                "phases": {name: float(s) for name, s in zip(PHASES, totals, strict=True) if s},
                "num_lost": int(own.total("num_lost")),
            }
        )
    return found


def drop_lost(events: Iterable[Event], limits: dict[int, float]) -> tuple[list[Event], list[Event]]:
    """Split off what a later attempt did again because it began before it; warnings stay."""
    kept: list[Event] = []
    lost: list[Event] = []
    for event in events:
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
    booking = [event for event in own if "phases" in event]
    ended = max(event["time"] for event in [*own, *launched])
    heard = max((event["time"] for event in booking), default=ended)
    return Attempt(
        number=number,
        started=_started(own, launched),
        ended=ended,
        exit_code=_exit_code(launched),
        booked_seconds=sum(sum(event["phases"].values()) for event in booking),
        seconds_after=ended - heard,
        has_end=any(event["kind"] == "end" for event in own),
    )


def _started(own: list[Event], launched: list[Event]) -> float | None:
    """By the launcher's word; without it the first event of the rank looks back that far."""
    for event in launched:
        if event["kind"] == "launch":
            return float(event["started"])
    for event in own:
        if event["kind"] == "begin":
            return float(event["time"] - event["seconds"])
    return None


def _exit_code(launched: list[Event]) -> int | None:
    codes = [int(event["code"]) for event in launched if event["kind"] == "exit"]
    return codes[-1] if codes else None


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
