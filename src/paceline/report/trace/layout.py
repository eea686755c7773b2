"""Where in time the parts of a run stand: slices of a rank's tracks, by its own clock.

Pure: events in, slices out. A line of events knows when it was written, how long each of its steps
took, and the sum of each phase over all of them. So steps stand where they were, back to back up to
the line; phases stand as sums, one after the other, and say so. Evaluations and saves end a line,
so they come first in the next.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from paceline.record.events import Event
from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    START_UP,
    UNEXPLAINED,
)
from paceline.report.trace.lines import ATTEMPT_STRIDE, Keys, RankLines, attempt_and_step
from paceline.units import format_bytes

Track = Literal["steps", "phases", "collectives", "evaluations", "saves"]

_ORDER = (EVALUATE, CHECKPOINT, INPUT, COMPUTE, NETWORK, OPTIMIZER, UNEXPLAINED)
_LEAST_SECONDS = 1e-6
_SUM = "sum over these steps"
_HIDDEN = "what went on beside computing is not in the length"
_INSIDE = "of this one step; the order inside it is assumed"


@dataclass(frozen=True)
class Slice:
    attempt: int
    track: Track
    name: str
    start: float
    end: float
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """A moment: a score, a warning, an end."""

    attempt: int
    name: str
    time: float
    args: dict[str, Any] = field(default_factory=dict)


def slices_of_rank(rank: RankLines, chosen: Keys, limits: dict[int, float]) -> Iterator[Slice]:
    """All that a rank did; `limits` is the last step of each attempt that counts."""
    yield from _start_ups(rank)
    for attempt in rank.attempts:
        yield from _lines_of_attempt(rank, attempt, chosen, limits.get(attempt, float("inf")))
    yield from _evaluations(rank)
    yield from _saves(rank.others)


def _lines_of_attempt(rank: RankLines, attempt: int, chosen: Keys, limit: float) -> Iterator[Slice]:
    last_step, last_time = _begin_of(rank, attempt)
    is_own = rank.keys // ATTEMPT_STRIDE == attempt
    for event in rank.events(np.flatnonzero(is_own & np.isin(rank.keys, chosen)).tolist()):
        if event["time"] < last_time:
            continue
        first = event["step"] - event.get("num_steps", 1) + 1
        start = max(event["time"] - event["seconds"], last_time)
        if first > last_step + 1 and last_time < start:
            yield _not_drawn(attempt, (last_step + 1, first - 1), last_time, start)
        yield from line_slices(event, start, is_lost=event["step"] > limit)
        last_step, last_time = event["step"], event["time"]


def _begin_of(rank: RankLines, attempt: int) -> tuple[int, float]:
    for event in rank.others:
        if event["kind"] == "begin" and event["attempt"] == attempt:
            return event["step"], event["time"]
    return 0, float("-inf")


def _not_drawn(attempt: int, steps: tuple[int, int], start: float, end: float) -> Slice:
    first, last = steps
    args = {"first_step": first, "last_step": last, "why": "thinned: no slow step among them"}
    return Slice(attempt, "steps", f"{last - first + 1} steps not drawn", start, end, args)


def _start_ups(rank: RankLines) -> Iterator[Slice]:
    for event in rank.others:
        if event["kind"] == "begin":
            start = event["time"] - max(event["seconds"], 0.0)
            number = event["attempt"]
            yield Slice(number, "steps", START_UP, start, event["time"], {"attempt": number})


def line_slices(event: Event, start: float, is_lost: bool) -> Iterator[Slice]:
    """Of one line that begins at `start`."""
    yield from _step_slices(event, start, is_lost)
    last, count = event["step"], event.get("num_steps", len(event.get("step_seconds", ())))
    args: dict[str, Any] = {"first_step": last - count + 1, "last_step": last, "known": _SUM}
    phases, now = event["phases"], start
    for name in (*_ORDER, *(name for name in phases if name not in _ORDER)):
        seconds = phases.get(name, 0.0)
        end = min(now + seconds, event["time"])
        if name == NETWORK:
            yield from _collectives(event, (now, end), args)
        if end - now > _LEAST_SECONDS:
            yield Slice(event["attempt"], "phases", name, now, end, args)
            now = end


def _collectives(event: Event, wait: tuple[float, float], args: dict[str, Any]) -> Iterator[Slice]:
    """What a line tells of them: how many bytes, and the waiting that compute did not hide. Where
    it hid all, the slice has no length."""
    reduced, others = event.get("reduced_bytes", 0), event.get("collective_bytes", 0)
    if not reduced and not others and not event.get("num_collectives"):
        return
    told = {"all_reduce_bytes": reduced, "wait_seconds": wait[1] - wait[0], "hidden": _HIDDEN}
    if "num_collectives" in event:
        told |= {"num_other_collectives": event["num_collectives"], "other_bytes": others}
    name = f"all-reduce of {format_bytes(reduced)}" if reduced else "collectives"
    yield Slice(event["attempt"], "collectives", name, *wait, args | told)


def _step_slices(event: Event, start: float, is_lost: bool) -> Iterator[Slice]:
    seconds, end = event.get("step_seconds", []), event["time"]
    slow = event.get("slowest_step", {})
    for place in range(len(seconds) - 1, -1, -1):
        begin, step = max(end - seconds[place], start), event["step"] - len(seconds) + 1 + place
        if end - begin > _LEAST_SECONDS:
            args = {"lost": "a later attempt did it again"} if is_lost else {}
            yield Slice(event["attempt"], "steps", f"step {step}", begin, end, args)
            if step == slow.get("step"):
                yield from _inside_step(event["attempt"], slow, begin, end)
        end = begin


def _inside_step(attempt: int, slow: dict[str, Any], begin: float, end: float) -> Iterator[Slice]:
    """The slowest step of a line has phases of its own."""
    phases, now = slow.get("phases", {}), begin
    for name in _ORDER:
        until = min(now + phases.get(name, 0.0), end)
        if until - now > _LEAST_SECONDS:
            yield Slice(attempt, "steps", name, now, until, {"known": _INSIDE})
            now = until


def _evaluations(rank: RankLines) -> Iterator[Slice]:
    """From the line that an evaluation ended to its last score: both are moments, not sums."""
    ends = {}
    for event in rank.others:
        if event["kind"] == "score":
            ends[event["attempt"], event["step"]] = event["time"]
    if not ends:
        return
    for key, start in zip(rank.keys.tolist(), rank.times.tolist(), strict=True):
        attempt, step = attempt_and_step(key)
        end = ends.get((attempt, step))
        if end is not None and end > start:
            yield Slice(attempt, "evaluations", "evaluation", start, end, {"step": step})


def _saves(others: Iterable[Event]) -> Iterator[Slice]:
    """A thread writes them while training goes on; one at a time."""
    for event in others:
        seconds = event.get("write_seconds", 0.0)
        if event["kind"] == "checkpoint" and seconds > 0:
            told = ("num_bytes", "wait_seconds", "copy_seconds")
            args = {"step": event["step"], **{n: event[n] for n in told if n in event}}
            start, number = event["time"] - seconds, event["attempt"]
            yield Slice(number, "saves", "checkpoint", start, event["time"], args)


def marks_of(others: Iterable[Event]) -> Iterator[Mark]:
    for event in others:
        kind, told = event["kind"], event
        if kind == "score":
            kind = f"score {event.get('split', '')}".strip()
            told = {**event, **event["scores"]}
            shown = ["step", "split", *event["scores"]]
        elif kind in ("warning", "note"):
            shown = ["text"]
        elif kind in ("end", "launch", "exit"):
            shown = ["attempt", "reason", "code", "step", "command"]
        else:
            continue
        args = {name: told[name] for name in shown if name in told}
        yield Mark(event["attempt"], kind, event["time"], args)
