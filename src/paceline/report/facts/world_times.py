"""How the ranks of a world spent their steps, side by side, so that waiting can be traced.

Stretches are groups of neighbouring steps that every rank did; in each, a rank has its seconds per
step by phase. A short run has one stretch per event line, a long one a few hundred.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.record.columns import RankRecord, StepColumns, lost_rows
from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    PHASES,
    UNEXPLAINED,
)

Numbers = NDArray[np.float64]

LOOP = (INPUT, COMPUTE, NETWORK, OPTIMIZER, CHECKPOINT, UNEXPLAINED)
OWN = tuple(phase for phase in LOOP if phase != NETWORK)
"""What a rank does itself; the rest is waiting for others."""

_MOST_STRETCHES = 200


@dataclass(frozen=True)
class Interval:
    """Some steps of one rank, up to `step`, with their seconds by phase."""

    step: int
    num_steps: int
    phases: dict[str, float]


@dataclass(frozen=True)
class WorldTimes:
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    """Of each rank; empty names where nobody said."""
    seconds: Numbers
    """Per step: ranks x stretches x PHASES. NaN where a rank said nothing."""
    num_steps: Numbers
    """Of each stretch, as the first rank counted them."""
    last_steps: Numbers
    """The last step of each stretch."""
    share_read: float = 1.0
    """Of the lines of the other ranks."""

    def of(self, *phases: str) -> Numbers:
        """Seconds per step in these phases together: ranks x stretches."""
        places = [PHASES.index(phase) for phase in phases]
        summed: Numbers = self.seconds[:, :, places].sum(axis=2)
        return summed

    def per_step(self, *phases: str) -> float:
        """Mean over ranks and steps."""
        if not len(self.num_steps):
            return 0.0
        return self.mean(np.nanmean(self.of(*phases), axis=0))

    def mean(self, per_stretch: Numbers) -> float:
        """Of a value per stretch, weighted by steps; stretches that nobody knows are left out."""
        known = ~np.isnan(per_stretch)
        weight = float(self.num_steps[known].sum())
        return float((per_stretch[known] * self.num_steps[known]).sum() / weight) if weight else 0.0


def world_times(
    first: StepColumns, records: list[RankRecord], limits: dict[int, float]
) -> WorldTimes:
    """`first` are the kept rows of the rank that tells the story; it is also among `records`."""
    edges = _edges(first)
    num_steps = _sums(first["num_steps"], _stretch_of(first, edges), len(edges))
    speaking = [record for record in records if len(record.steps)]
    tables = [_per_step(_kept(record, limits), edges) for record in speaking]
    seconds = np.array(tables).reshape(len(speaking), len(edges), len(PHASES))
    known = (num_steps > 0) & ~np.isnan(seconds).all(axis=(0, 2))
    return WorldTimes(
        ranks=tuple(record.rank for record in speaking),
        hosts=tuple(str(record.facts.get("host", "")) for record in speaking),
        seconds=seconds[:, known],
        num_steps=num_steps[known],
        last_steps=edges[known],
        share_read=min((record.share_read for record in records), default=1.0),
    )


def times_of_intervals(
    intervals: dict[int, list[Interval]], hosts: dict[int, str]
) -> WorldTimes | None:
    """Of ranks that are being watched. The lowest rank's lines are the stretches."""
    ranks = sorted(rank for rank, own in intervals.items() if own)
    if not ranks:
        return None
    first = intervals[ranks[0]]
    edges = np.unique([float(one.step) for one in first])
    tables = [_table_of(intervals[rank], edges) for rank in ranks]
    num_steps = tables[0][0]
    with np.errstate(invalid="ignore", divide="ignore"):
        seconds = np.array([totals / counts[:, None] for counts, totals in tables])
    return WorldTimes(
        ranks=tuple(ranks),
        hosts=tuple(hosts.get(rank, "") for rank in ranks),
        seconds=seconds,
        num_steps=num_steps,
        last_steps=edges,
    )


def _table_of(intervals: list[Interval], edges: Numbers) -> tuple[Numbers, Numbers]:
    """Steps, and seconds by phase, of each stretch."""
    groups = np.searchsorted(edges, [one.step for one in intervals])
    counts = np.array([float(one.num_steps) for one in intervals])
    rows = np.array([[one.phases.get(name, 0.0) for name in PHASES] for one in intervals])
    num_steps = _sums(counts, groups, len(edges))
    totals = [_sums(rows[:, n], groups, len(edges)) for n in range(len(PHASES))]
    return num_steps, np.stack(totals, axis=1)


def _kept(record: RankRecord, limits: dict[int, float]) -> StepColumns:
    return record.steps.where(~lost_rows(record.steps, limits))


def _edges(first: StepColumns) -> Numbers:
    """The last step of each stretch."""
    steps = np.unique(first["step"])
    if len(steps) <= _MOST_STRETCHES:
        return steps
    places = np.linspace(0, len(steps) - 1, _MOST_STRETCHES + 1)[1:].astype(int)
    edges: Numbers = steps[places]
    return edges


def _stretch_of(columns: StepColumns, edges: Numbers) -> NDArray[np.intp]:
    return np.searchsorted(edges, columns["step"])


def _sums(values: Numbers, groups: NDArray[np.intp], count: int) -> Numbers:
    inside = groups < count
    return np.bincount(groups[inside], values[inside], minlength=count).astype(np.float64)


def _per_step(columns: StepColumns, edges: Numbers) -> Numbers:
    groups, count = _stretch_of(columns, edges), len(edges)
    num_steps = _sums(columns["num_steps"], groups, count)
    totals = np.stack(
        [_sums(columns.phases[:, n], groups, count) for n in range(len(PHASES))], axis=1
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        per_step: Numbers = np.where(num_steps[:, None] > 0, totals / num_steps[:, None], np.nan)
    return per_step
