"""Jumps of the clock on the wall: found, and taken out of the times of a run.

A clock that is set, or a machine that sleeps, moves `time` without `seconds`, which a
monotonic clock has measured.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paceline.record.columns import RankRecord, with_times
from paceline.record.events import Event

Numbers = NDArray[np.float64]

_LEAST_JUMP = 10.0
"""Seconds: a busy machine may write an event a little late, but not that late."""


@dataclass(frozen=True)
class Jump:
    attempt: int
    step: int
    seconds: float
    """Forward, if above zero."""


def find_jumps(record: RankRecord) -> list[Jump]:
    found = []
    for number in np.unique(record.steps["attempt"]).astype(int).tolist():
        own = record.steps.where(record.steps["attempt"] == number)
        rows = np.stack([own["time"], own["seconds"], own["step"], own["num_lost"]], axis=1)
        begins = _marks(record.events, number, "begin")
        ends = _marks(record.events, number, "end")
        marks = np.concatenate([begins, rows, ends])
        found += [Jump(number, step, seconds) for step, seconds in _jumps_between(marks)]
    return found


def _marks(events: list[Event], attempt: int, kind: str) -> Numbers:
    own = [e for e in events if e["attempt"] == attempt and e["kind"] == kind and "phases" in e]
    marks = [
        (e["time"], e.get("seconds", 0.0), e.get("step", 0), e.get("num_lost", 0)) for e in own
    ]
    return np.array(marks, dtype=np.float64).reshape(-1, 4)


def _jumps_between(marks: Numbers) -> list[tuple[int, float]]:
    """(step, seconds) of jumps between marks, which are (time, seconds since the mark before by a
    monotonic clock, step, events lost before it). Where events were lost, time is
    missing for another reason."""
    passed = np.diff(marks[:, 0]) - marks[1:, 1]
    jumped = (np.abs(passed) > np.maximum(_LEAST_JUMP, marks[1:, 1])) & (marks[1:, 3] == 0)
    return [(int(marks[i + 1, 2]), float(passed[i])) for i in np.flatnonzero(jumped)]


def without_jumps(
    record: RankRecord, launcher: list[Event], jumps: list[Jump]
) -> tuple[RankRecord, list[Event]]:
    """All times as a clock would have told them that nobody set."""

    def ahead(attempt: float, step: float) -> float:
        return sum(j.seconds for j in jumps if (j.attempt, j.step) <= (attempt, step))

    steps = record.steps
    early = [ahead(a, s) for a, s in zip(steps["attempt"], steps["step"], strict=True)]
    events = [
        {**event, "time": event["time"] - ahead(event["attempt"], event.get("step", 0))}
        for event in record.events
    ]
    told = []
    for event in launcher:
        before = ahead(event["attempt"], -1)
        began = {"started": event["started"] - before} if "started" in event else {}
        moved = ahead(event["attempt"], math.inf) if event["kind"] == "exit" else before
        told.append({**event, **began, "time": event["time"] - moved})
    steady = replace(record, events=events, steps=with_times(steps, steps["time"] - early))
    return steady, told
