"""Long runs as columns: each `steps` event is a row of numbers, so that 300,000 fit in memory.

Reading only; what the figures mean is decided elsewhere. Files of other ranks may be read in part:
evenly spread windows tell who waits for whom as well as every line would, in a hundredth of the
time.
"""

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from paceline.record.events import Event, parse_events, share_read, spread_lines
from paceline.record.schema import PHASES, RunDirectory

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
    "loss_scale",
    "reduced_bytes",
    "num_lost",
)
_PLACE = {name: number for number, name in enumerate((*_FIELDS, "num_step_seconds", *PHASES))}
_WHEN_ABSENT = {name: 0.0 if name in ("cpu_seconds", "num_lost") else math.nan for name in _FIELDS}
_FIELD_AND_DEFAULT = tuple(_WHEN_ABSENT.items())
_MOST_SLOWEST = 5
_RANK_FILE = re.compile(r"rank-(\d+)\.jsonl")


@dataclass(frozen=True)
class StepColumns:
    """One row per `steps` event, in the order of the file."""

    rows: Numbers
    step_seconds: NDArray[np.float32]
    """Of every single step; `num_step_seconds` of a row says how many are its own."""
    step_rates: Numbers
    step_losses: Numbers
    """Beside `step_seconds`; NaN where a line does not tell them."""

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
        return StepColumns(
            self.rows[mask],
            self.step_seconds[of_step],
            self.step_rates[of_step],
            self.step_losses[of_step],
        )

    def step_numbers(self) -> Numbers:
        """Of every single step, beside `step_seconds`."""
        counts = self["num_step_seconds"].astype(int)
        ends = np.repeat(self["step"], counts)
        left = np.repeat(np.cumsum(counts), counts) - np.arange(int(counts.sum()))
        numbers: Numbers = ends - left + 1
        return numbers


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
    table, others = _Table(), []
    for event in parse_events(spread_lines(path, most_bytes)):
        if event["kind"] == "steps":
            table.add(event)
        else:
            others.append(event)
    return RankRecord(rank, others, table.columns(), table.slowest, share_read(path, most_bytes))


class _Table:
    def __init__(self) -> None:
        self._rows = array("d")
        self._step_seconds = array("f")
        self._step_rates = array("d")
        self._step_losses = array("d")
        self.slowest: list[Event] = []

    def add(self, event: Event) -> None:
        """A `steps` event; called for every line of a long run."""
        seconds = event.get("step_seconds", ())
        self._rows.extend(_row(event, len(seconds)))
        self._step_seconds.extend(seconds)
        self._step_rates.extend(_beside(seconds, event.get("rates")))
        self._step_losses.extend(_beside(seconds, event.get("losses")))
        slow = event.get("slowest_step")
        if slow is not None:
            self._keep_slowest({**slow, "attempt": event["attempt"]})

    def _keep_slowest(self, slow: Event) -> None:
        kept = self.slowest
        if len(kept) < _MOST_SLOWEST or slow["seconds"] > kept[-1]["seconds"]:
            kept.append(slow)
            kept.sort(key=lambda slow: -slow["seconds"])
            del kept[_MOST_SLOWEST:]

    def columns(self) -> StepColumns:
        rows = np.frombuffer(self._rows, dtype=np.float64).reshape(-1, len(_PLACE))
        return StepColumns(
            rows,
            np.frombuffer(self._step_seconds, dtype=np.float32),
            np.frombuffer(self._step_rates, dtype=np.float64),
            np.frombuffer(self._step_losses, dtype=np.float64),
        )


def _beside(seconds: Sequence[float], values: list[float] | None) -> Iterable[float]:
    """One value for each step that was timed, or none that is known."""
    if values is None or len(values) != len(seconds):
        return repeat(math.nan, len(seconds))
    return values


def _row(event: Event, num_step_seconds: int) -> list[float]:
    get, phases = event.get, event.get("phases", _NO_PHASES)
    row = [get(name, absent) for name, absent in _FIELD_AND_DEFAULT]
    row.append(num_step_seconds)
    row += [phases.get(name, 0.0) for name in PHASES]
    if "num_steps" not in event:
        row[_PLACE["num_steps"]] = max(num_step_seconds, 1)
    return row


_NO_PHASES: dict[str, float] = {}


def with_times(steps: StepColumns, times: Numbers) -> StepColumns:
    rows = steps.rows.copy()
    rows[:, _PLACE["time"]] = times
    return replace(steps, rows=rows)


def lost_rows(steps: StepColumns, limits: dict[int, float]) -> NDArray[np.bool_]:
    """Which rows a later attempt did again."""
    is_lost = np.zeros(len(steps), bool)
    for number, limit in limits.items():
        is_lost |= (steps["attempt"] == number) & (steps["step"] > limit)
    return is_lost
