"""Long runs as columns: each `steps` event is a row of numbers, so that 300,000 fit in memory.

Reading only; what the figures mean is decided elsewhere. Files of other ranks may be read in part:
evenly spread windows tell who waits for whom as well as every line would, in a hundredth of the
time.
"""

import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paceline.record.reader import (
    Event,
    Story,
    cutoffs,
    drop_lost,
    join_attempts,
    total_phases,
)
from paceline.record.schema import PHASES, UNEXPLAINED, RunDirectory

Numbers = NDArray[np.float64]

_FIELDS = (
    "attempt",
    "time",
    "step",
    "num_steps",
    "loss",
    "rate",
    "num_units",
    "seconds",
    "cpu_seconds",
    "epochs",
    "gradient_norm",
    "reduced_bytes",
    "num_lost",
)
_OTHERS = ("collective_bytes", "num_step_seconds")
_PLACE = {name: number for number, name in enumerate((*_FIELDS, *_OTHERS, *PHASES))}
_WHEN_ABSENT = {name: 0.0 if name in ("cpu_seconds", "num_lost") else math.nan for name in _FIELDS}
_KNOWN_PHASES = frozenset(PHASES)
_COUNTED_WITH = ("time", "seconds", "started", "code", "num_lost", "cpu_seconds", "write_seconds")
_NEEDED = {
    "begin": ("time", "step", "seconds"),
    "launch": ("time", "started"),
    "exit": ("time", "code"),
    "end": ("time", "reason"),
}
_NUM_WINDOWS = 64
_MOST_SLOWEST = 5
_LEAST_JUMP = 10.0
"""Seconds: a busy machine may write an event a little late, but not that late."""
_RANK_FILE = re.compile(r"rank-(\d+)\.jsonl")


@dataclass(frozen=True)
class StepColumns:
    """One row per `steps` event, in the order of the file."""

    rows: Numbers
    step_seconds: NDArray[np.float32]
    """Of every single step; `num_step_seconds` of a row says how many are its own."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Numbers:
        """A field of the event, or the seconds of a phase."""
        column: Numbers = self.rows[:, _PLACE[name]]
        return column

    @property
    def phases(self) -> Numbers:
        """Seconds, rows x PHASES."""
        return self.rows[:, -len(PHASES) :]

    def total(self, name: str) -> float:
        return float(np.nansum(self[name]))

    def where(self, mask: NDArray[np.bool_]) -> "StepColumns":
        if mask.all():
            return self
        of_step = np.repeat(mask, self["num_step_seconds"].astype(int))
        return StepColumns(self.rows[mask], self.step_seconds[of_step])


@dataclass(frozen=True)
class RankRecord:
    """What one rank left: its rows, and all other events as they are."""

    rank: int
    events: list[Event]
    steps: StepColumns
    slowest: list[Event] = field(default_factory=list)
    """`slowest_step` of the intervals that had the slowest of all, slowest first."""
    share_read: float = 1.0

    @property
    def facts(self) -> Event:
        begins = [event for event in self.events if event["kind"] == "begin"]
        return begins[-1] if begins else {}


def rank_numbers(run: RunDirectory) -> list[int]:
    names = [_RANK_FILE.fullmatch(path.name) for path in run.events.glob("rank-*.jsonl")]
    return sorted(int(match.group(1)) for match in names if match)


def read_rank(run: RunDirectory, rank: int, most_bytes: int | None = None) -> RankRecord:
    path = run.rank_events(rank)
    lines = _Lines(path, most_bytes)
    table = _Table()
    others = [event for event in parsed(lines) if not table.takes(event)]
    return RankRecord(rank, others, table.columns(), table.slowest(), lines.share)


class _Lines:
    """The lines of a file, or of windows spread evenly over it when it is bigger than asked for."""

    def __init__(self, path: Path, most_bytes: int | None) -> None:
        self._path = path
        self._size = path.stat().st_size if path.is_file() else 0
        whole = most_bytes is None or self._size <= most_bytes
        self._window = None if whole or most_bytes is None else most_bytes // _NUM_WINDOWS
        self.share = 1.0 if whole or most_bytes is None else most_bytes / self._size

    def __iter__(self) -> Iterator[bytes]:
        if not self._size:
            return
        with self._path.open("rb") as file:
            if self._window is None:
                yield from file
                return
            for number in range(_NUM_WINDOWS):
                yield from self._lines_at(file, number, self._window)

    def _lines_at(self, file: IO[bytes], number: int, window: int) -> Iterator[bytes]:
        begin = (self._size - window) * number // (_NUM_WINDOWS - 1)
        file.seek(begin)
        if begin:
            file.readline()  # the rest of a line that began before
        while file.tell() < begin + window and (line := file.readline()):
            yield line


def parsed(lines: Iterable[bytes]) -> Iterator[Event]:
    """Every whole line that is an event; half a line, left by a kill, says nothing."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and _is_event(event):
            yield event


def _is_event(event: Event) -> bool:
    """Whether all that is counted with is a number; rows of steps are looked at one by one."""
    if not isinstance(event.get("attempt"), int) or not isinstance(event.get("kind"), str):
        return False
    if event["kind"] == "steps":
        return _is_number(event.get("time"))
    numbers = all(_is_number(event[name]) for name in _COUNTED_WITH if name in event)
    needed = _NEEDED.get(event["kind"], ("time",))
    phases = event.get("phases", {})
    return (
        numbers
        and all(name in event for name in needed)
        and isinstance(event.get("step", 0), int)
        and isinstance(phases, dict)
        and all(map(_is_number, phases.values()))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def read_probes(path: Path, most_bytes: int) -> list[Event]:
    """A host's probes; of a long run, evenly spread ones."""
    return [event for event in parsed(_Lines(path, most_bytes)) if event["kind"] == "probe"]


class _Table:
    def __init__(self) -> None:
        self._rows = array("d")
        self._step_seconds = array("f")
        self._slowest: list[Event] = []

    def takes(self, event: Event) -> bool:
        """Whether it was a `steps` event; one that holds something else than numbers is dropped."""
        if event["kind"] != "steps":
            return False
        try:
            seconds = array("f", event.get("step_seconds", ()))
            row = _row(event, len(seconds))
        except (TypeError, ValueError, AttributeError, OverflowError):
            return True
        self._rows.extend(row)
        self._step_seconds.extend(seconds)
        self._keep_slowest(event)
        return True

    def _keep_slowest(self, event: Event) -> None:
        slow = event.get("slowest_step")
        if not isinstance(slow, dict) or not _is_slow_step(slow):
            return
        kept = self._slowest
        if len(kept) < _MOST_SLOWEST or slow["seconds"] > kept[-1]["seconds"]:
            kept.append({**slow, "attempt": event["attempt"]})
            kept.sort(key=lambda slow: -slow["seconds"])
            del kept[_MOST_SLOWEST:]

    def columns(self) -> StepColumns:
        rows = np.frombuffer(self._rows, dtype=np.float64).reshape(-1, len(_PLACE))
        return StepColumns(rows, np.frombuffer(self._step_seconds, dtype=np.float32))

    def slowest(self) -> list[Event]:
        return self._slowest


def _is_slow_step(slow: Event) -> bool:
    return isinstance(slow.get("seconds"), int | float) and isinstance(slow.get("step"), int)


def _row(event: Event, num_step_seconds: int) -> "array[float]":
    """Called for every line of a long run, so it does without a test per field where it can."""
    get, phases = event.get, event.get("phases") or {}
    try:
        row = array("d", [get(name, _WHEN_ABSENT[name]) for name in _FIELDS])
    except TypeError:  # a null, or something else that is no number
        row = array("d", [_number(get(name), _WHEN_ABSENT[name]) for name in _FIELDS])
    row.append(_all_bytes(get("collective_bytes")))
    row.append(num_step_seconds)
    row.extend(array("d", [phases.get(name, 0.0) for name in PHASES]))
    if not phases.keys() <= _KNOWN_PHASES:
        others = [seconds for name, seconds in phases.items() if name not in _KNOWN_PHASES]
        row[_PLACE[UNEXPLAINED]] += sum(others)
    if not math.isfinite(row[_PLACE["step"]] + sum(row[-len(PHASES) :])):
        raise ValueError("a row without a step, or with phases that do not add up")
    if math.isnan(row[_PLACE["num_steps"]]):
        row[_PLACE["num_steps"]] = max(num_step_seconds, 1)
    return row


def _number(value: Any, when_absent: float) -> float:
    return when_absent if value is None else float(value)


def _all_bytes(by_kind: Any) -> float:
    return float(sum(by_kind.values())) if isinstance(by_kind, dict) else math.nan


@dataclass(frozen=True)
class LongStory:
    story: Story
    """Its `steps` events are sums over all rows of an attempt."""
    kept: StepColumns
    lost: StepColumns
    cutoffs: dict[int, float]
    """For each attempt the last step that no later attempt did again."""
    jumps: list[tuple[int, float]]
    """Where the clock on the wall moved and the run's own did not: step, seconds."""


def tell(record: RankRecord, launcher: list[Event]) -> LongStory:
    """The story of a run from one rank's record, without making an event of every row."""
    jumps = _jumps(record)
    if jumps:
        record, launcher = _steady(record, launcher, jumps)
    numbers = {int(number) for number in np.unique(record.steps["attempt"])}
    marks = [{"kind": "mark", "attempt": number} for number in numbers]
    limits = cutoffs([*record.events, *marks])
    is_lost = lost_rows(record.steps, limits)
    kept, lost = record.steps.where(~is_lost), record.steps.where(is_lost)
    kept_events, lost_events = drop_lost([*record.events, *_sums(kept), *_sums(lost)], limits)
    attempts = join_attempts([*kept_events, *lost_events], launcher)
    return LongStory(
        story=Story(
            kept_events, lost_events, total_phases(kept_events, lost_events, attempts), attempts
        ),
        kept=kept,
        lost=lost,
        cutoffs=limits,
        jumps=[(step, seconds) for _, step, seconds in jumps],
    )


def lost_rows(steps: StepColumns, limits: dict[int, float]) -> NDArray[np.bool_]:
    """Which rows a later attempt did again."""
    is_lost = np.zeros(len(steps), bool)
    for number, limit in limits.items():
        is_lost |= (steps["attempt"] == number) & (steps["step"] > limit)
    return is_lost


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


def _jumps(record: RankRecord) -> list[tuple[int, int, float]]:
    """(attempt, step, seconds) of every jump of the clock on the wall."""
    found = []
    for number in np.unique(record.steps["attempt"]).astype(int).tolist():
        own = record.steps.where(record.steps["attempt"] == number)
        rows = np.stack([own["time"], own["seconds"], own["step"], own["num_lost"]], axis=1)
        begins = _marks(record.events, number, "begin")
        ends = _marks(record.events, number, "end")
        marks = np.concatenate([begins, rows, ends])
        found += [(number, step, seconds) for step, seconds in _clock_jumps(marks)]
    return found


def _marks(events: list[Event], attempt: int, kind: str) -> Numbers:
    own = [e for e in events if e["attempt"] == attempt and e["kind"] == kind and "phases" in e]
    marks = [
        (e["time"], e.get("seconds", 0.0), e.get("step", 0), e.get("num_lost", 0)) for e in own
    ]
    return np.array(marks, dtype=np.float64).reshape(-1, 4)


def _clock_jumps(marks: Numbers) -> list[tuple[int, float]]:
    """(step, seconds) of jumps between marks, which are (time, seconds since the mark before by a
    clock that nobody can set, step, events lost before it). Where events were lost, time is
    missing for another reason."""
    passed = np.diff(marks[:, 0]) - marks[1:, 1]
    jumped = (np.abs(passed) > np.maximum(_LEAST_JUMP, marks[1:, 1])) & (marks[1:, 3] == 0)
    return [(int(marks[i + 1, 2]), float(passed[i])) for i in np.flatnonzero(jumped)]


def _steady(
    record: RankRecord, launcher: list[Event], jumps: list[tuple[int, int, float]]
) -> tuple[RankRecord, list[Event]]:
    """All times as a clock would have told them that nobody set."""

    def ahead(attempt: float, step: float) -> float:
        return sum(s for number, where, s in jumps if (number, where) <= (attempt, step))

    rows = record.steps.rows.copy()
    rows[:, _PLACE["time"]] -= [
        ahead(a, s) for a, s in zip(record.steps["attempt"], record.steps["step"], strict=True)
    ]
    events = [
        {**event, "time": event["time"] - ahead(event["attempt"], event.get("step", 0))}
        for event in record.events
    ]
    told = []
    for event in launcher:
        early = ahead(event["attempt"], -1)
        late = ahead(event["attempt"], math.inf)
        began = {"started": event["started"] - early} if "started" in event else {}
        moved = late if event["kind"] == "exit" else early
        told.append({**event, **began, "time": event["time"] - moved})
    steady = replace(record, events=events, steps=replace(record.steps, rows=rows))
    return steady, told
