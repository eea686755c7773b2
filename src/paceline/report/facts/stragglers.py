"""Who is late: the one definition, for a recorded run and for one that is being watched."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.record.schema import NETWORK
from paceline.report.facts.world_times import LOOP, OWN, WorldTimes

Numbers = NDArray[np.float64]

_SAME_RANK_SHARE = 0.75
"""Of the lost time, that must be due to one rank before it is called a straggler."""
_LEAST_SHARE = 0.1
"""Of the loop: waiting for less than that is not worth a name."""


@dataclass(frozen=True)
class Straggler:
    rank: int
    host: str
    phase: str
    """Where its extra time lies."""
    share: float
    """Of the loop: what the others would not have waited without it."""
    seconds_per_step: float
    extra_seconds: float
    """Per step in that phase, over the mean of the others."""


def find_straggler(times: WorldTimes) -> Straggler | None:
    """The rank that the others wait for: while they wait, it waits least."""
    waits, step_seconds = times.of(NETWORK), times.per_step(*LOOP)
    if len(times.ranks) < 2:
        return None
    known = ~np.isnan(waits).any(axis=0) & (times.num_steps > 0)
    if not known.any():
        return None
    waits, weights = waits[:, known], times.num_steps[known]
    lost = _lost_by_rank(waits, weights)
    rank = int(np.argmax(lost))
    # By chance each rank is late now and then; what exceeds an even spread is its own.
    if lost[rank] < _SAME_RANK_SHARE * lost.sum() or not lost[rank]:
        return None
    seconds = float(lost[rank] / weights.sum())
    if seconds < _LEAST_SHARE * step_seconds:
        return None
    phase, extra = _extra_phase(times, known, rank)
    return Straggler(
        rank=times.ranks[rank],
        host=times.hosts[rank],
        phase=phase,
        share=seconds / step_seconds,
        seconds_per_step=seconds,
        extra_seconds=extra,
    )


def _lost_by_rank(waits: Numbers, weights: Numbers) -> Numbers:
    """Seconds that the others waited for each rank, over the whole run."""
    late = np.argmin(waits, axis=0)
    stretches = np.arange(waits.shape[1])
    others = (waits.sum(axis=0) - waits[late, stretches]) / (waits.shape[0] - 1)
    excess = (others - waits[late, stretches]) * weights
    return np.bincount(late, excess, minlength=waits.shape[0]).astype(np.float64)


def _extra_phase(times: WorldTimes, known: NDArray[np.bool_], rank: int) -> tuple[str, float]:
    extras = {}
    for phase in OWN:
        own = times.of(phase)[:, known]
        others = np.delete(own, rank, axis=0).mean(axis=0)
        weights = times.num_steps[known]
        extras[phase] = float(((own[rank] - others) * weights).sum() / weights.sum())
    phase = max(extras, key=lambda name: extras[name])
    return phase, extras[phase]
