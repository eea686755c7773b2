"""The verdict: what held the steps up, from seconds per step and nothing else. Pure judgement.

A bottleneck is what would save at least a quarter of the time if it were infinitely fast. Shares
are of the loop: input, compute, network, optimizer, checkpoint and what was not explained.
Evaluations and start-up are not held against a step.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    UNEXPLAINED,
)
from paceline.report.wording import percent
from paceline.report.world_times import WorldTimes

Numbers = NDArray[np.float64]

STRAGGLER = "straggler"
UNCLEAR = "unclear"
LOOP = (INPUT, COMPUTE, NETWORK, OPTIMIZER, CHECKPOINT, UNEXPLAINED)
OWN = tuple(phase for phase in LOOP if phase != NETWORK)
"""What a rank does itself; the rest is waiting for others."""

LEAST_SHARE = 0.25
_LEAST_STEPS = 10
_SAME_RANK_SHARE = 0.75
"""Of the lost time, that must be due to one rank before it is called a straggler."""


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


@dataclass(frozen=True)
class Verdict:
    word: str
    """input, compute, network, checkpoint, straggler or unclear."""
    share: float
    """Of the loop, of what the word names."""
    shares: dict[str, float] = field(default_factory=dict)
    step_seconds: float = 0.0
    without_network_seconds: float = 0.0
    without_input_seconds: float = 0.0
    straggler: Straggler | None = None
    why_unclear: str = ""


def judge(times: WorldTimes, num_steps: int) -> Verdict:
    step_seconds = times.per_step(*LOOP)
    if step_seconds <= 0:
        return Verdict(UNCLEAR, 0.0, why_unclear="no step was recorded")
    seconds = {phase: times.per_step(phase) for phase in LOOP}
    straggler = find_straggler(times, step_seconds)
    if straggler is not None:
        seconds = _blame(seconds, straggler, len(times.ranks))
    shares = {name: value / step_seconds for name, value in seconds.items()}
    word, share, why = _decide(shares, num_steps)
    return Verdict(
        word=word,
        share=share,
        shares=shares,
        step_seconds=step_seconds,
        without_network_seconds=_without_network(times),
        without_input_seconds=_without_input(times),
        straggler=straggler,
        why_unclear=why,
    )


def _blame(seconds: dict[str, float], late: Straggler, num_ranks: int) -> dict[str, float]:
    """Move what the others waited for one rank from the network to where it belongs.

    Only one rank saves checkpoints, so waiting for it then is the cost of saving.
    """
    waited = min(late.seconds_per_step * (num_ranks - 1) / num_ranks, seconds[NETWORK])
    moved = {**seconds, NETWORK: seconds[NETWORK] - waited}
    target = CHECKPOINT if late.phase == CHECKPOINT else STRAGGLER
    own = late.seconds_per_step / num_ranks
    moved[target] = moved.get(target, 0.0) + waited
    if target == STRAGGLER:  # its own extra time is lost as well
        taken = min(own, moved[late.phase])
        moved[late.phase] -= taken
        moved[target] += taken
    return moved


def _decide(shares: dict[str, float], num_steps: int) -> tuple[str, float, str]:
    """Word, share, and why it is unclear."""
    if num_steps < _LEAST_STEPS:
        return UNCLEAR, 0.0, f"{num_steps} steps are too few; {_LEAST_STEPS} are the least"
    avoidable = {name: shares.get(name, 0.0) for name in (INPUT, NETWORK, CHECKPOINT, STRAGGLER)}
    word = max(avoidable, key=lambda name: avoidable[name])
    computing = shares[COMPUTE] + shares[OPTIMIZER]
    unexplained = shares[UNEXPLAINED]
    if unexplained >= max(LEAST_SHARE, avoidable[word]):
        return UNCLEAR, unexplained, f"{percent(unexplained)} of the time was not measured"
    if avoidable[word] >= LEAST_SHARE:
        return word, avoidable[word], ""
    if computing >= 0.5:
        return COMPUTE, computing, ""
    return UNCLEAR, avoidable[word], "no single cause takes a quarter of the time"


def find_straggler(times: WorldTimes, step_seconds: float) -> Straggler | None:
    """The rank that the others wait for: while they wait, it waits least."""
    waits = times.of(NETWORK)
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
    if seconds < 0.1 * step_seconds:
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


def _without_network(times: WorldTimes) -> float:
    """The slowest rank's own work sets the pace when sending takes no time."""
    paced = times.mean(np.nanmax(times.of(*OWN), axis=0))
    return min(paced, times.per_step(*LOOP))


def _without_input(times: WorldTimes) -> float:
    """The slowest rank's other work, and the waiting that even the last rank has."""
    others = tuple(phase for phase in OWN if phase != INPUT)
    paced = np.nanmax(times.of(*others), axis=0) + np.nanmin(times.of(NETWORK), axis=0)
    saved = times.mean(np.nanmin(times.of(INPUT), axis=0))
    return min(times.mean(paced), times.per_step(*LOOP) - saved)
