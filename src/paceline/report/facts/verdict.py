"""The verdict: what held the steps up, from seconds per step and nothing else. Pure judgement.

A bottleneck is what would save at least a quarter of the time if it took no time. Shares
are of the loop: input, compute, network, optimizer, checkpoint and what was not explained.
Evaluations and start-up are not held against a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    UNEXPLAINED,
)
from paceline.report.facts.stragglers import Straggler, find_straggler
from paceline.report.facts.world_times import LOOP, OWN, WorldTimes
from paceline.report.roles.use import (
    SERVER_COMPUTE,
    SERVER_LINK,
    RolesUse,
    split_network,
)
from paceline.units import percent

STRAGGLER = "straggler"
UNCLEAR = "unclear"
LEAST_SHARE = 0.25
_AVOIDABLE = (INPUT, NETWORK, CHECKPOINT, STRAGGLER, SERVER_LINK, SERVER_COMPUTE)
_LEAST_STEPS = 10
_LEAST_SLOWER = 1.2
"""Than the others, of one whom they wait for."""


@dataclass(frozen=True)
class Verdict:
    word: str
    """input, compute, network, checkpoint, straggler, server link, server compute or unclear."""
    share: float
    """Of the loop, of what the word names."""
    shares: dict[str, float] = field(default_factory=dict)
    step_seconds: float = 0.0
    without_network_seconds: float = 0.0
    without_input_seconds: float = 0.0
    straggler: Straggler | None = None
    why_unclear: str = ""
    whole: str = "loop"
    """What the shares are of."""
    lacking: tuple[str, ...] = ()
    """What would have to be known for a judgement."""


def judge(times: WorldTimes, num_steps: int, roles: RolesUse | None = None) -> Verdict:
    """`roles`: with parameter servers, what trainers waited for in the network."""
    step_seconds = times.per_step(*LOOP)
    if step_seconds <= 0:
        return Verdict(UNCLEAR, 0.0, why_unclear="no step was recorded")
    seconds = {phase: times.per_step(phase) for phase in LOOP}
    network_share = seconds[NETWORK] / step_seconds
    # Out of step nobody waits for one who is slow, unless staleness is bounded.
    straggler = find_straggler(times) if roles is None or roles.is_sync else None
    if straggler is not None:
        seconds = _blame(seconds, straggler, len(times.ranks))
    shares = {name: value / step_seconds for name, value in seconds.items()}
    if roles is not None:
        waited = network_share - shares[NETWORK]
        shares |= _by_servers(split_network(roles.waits, network_share), waited)
        if roles.mode == "bounded":
            straggler = slowest_trainer(roles, times, shares[NETWORK])
            shares |= {STRAGGLER: shares[NETWORK], NETWORK: 0.0} if straggler else {}
    word, share, why = _decide(shares, num_steps, [])
    return Verdict(
        word=word,
        share=share,
        shares=shares,
        step_seconds=step_seconds,
        without_network_seconds=(
            _without_network(times)
            if roles is None or roles.is_sync
            else step_seconds - times.per_step(NETWORK)
        ),
        without_input_seconds=_without_input(times),
        straggler=straggler,
        why_unclear=why,
    )


def _by_servers(parts: dict[str, float], waited: float) -> dict[str, float]:
    """The network's share by what servers did meanwhile, without what was waiting for a straggler:
    that is waiting for the chief's word first of all."""
    for name in (NETWORK, SERVER_COMPUTE, SERVER_LINK):
        taken = min(parts.get(name, 0.0), waited)
        parts[name] = parts.get(name, 0.0) - taken
        waited -= taken
    return parts


def slowest_trainer(roles: RolesUse, times: WorldTimes, share: float) -> Straggler | None:
    """With bounded staleness: who keeps those waiting that are ahead."""
    made = {use.rank: use for use in roles.trainers if use.num_steps}
    if len(made) < 2 or share <= 0:
        return None
    own = {
        r: (u.phases.get(INPUT, 0.0) + u.phases.get(COMPUTE, 0.0)) / u.num_steps
        for r, u in made.items()
    }
    slow = max(own, key=lambda rank: own[rank])
    others = [seconds for rank, seconds in own.items() if rank != slow]
    if own[slow] < _LEAST_SLOWER * sum(others) / len(others):
        return None  # all are alike, and the bound alone makes them wait
    phase = max((INPUT, COMPUTE), key=lambda name: made[slow].phases.get(name, 0.0))
    return Straggler(
        rank=slow,
        host=made[slow].host,
        phase=phase,
        share=share,
        seconds_per_step=share * times.per_step(*LOOP),
        extra_seconds=own[slow] - sum(others) / len(others),
    )


def judge_shares(
    waits: dict[str, float], step_seconds: float, num_steps: int, lacking: Sequence[str]
) -> Verdict:
    """From the shares of a step that are known to be waiting; `lacking` names the others."""
    known = {name: min(share, 1.0) for name, share in waits.items()}
    if not lacking:
        known[COMPUTE] = max(1 - sum(known.values()), 0.0)
    word, share, why = _decide(known, num_steps, lacking)
    return Verdict(
        word=word,
        share=share,
        shares=known,
        step_seconds=step_seconds,
        without_network_seconds=step_seconds * (1 - known.get(NETWORK, 0.0)),
        without_input_seconds=step_seconds * (1 - known.get(INPUT, 0.0)),
        why_unclear=why,
        whole="step",
        lacking=tuple(lacking),
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


def _decide(
    shares: dict[str, float], num_steps: int, lacking: Sequence[str]
) -> tuple[str, float, str]:
    """Word, share, and why it is unclear."""
    if num_steps < _LEAST_STEPS:
        few = "1 step is" if num_steps == 1 else f"{num_steps} steps are"
        return UNCLEAR, 0.0, f"{few} too few; {_LEAST_STEPS} are the least"
    avoidable = {name: shares.get(name, 0.0) for name in _AVOIDABLE}
    word = max(avoidable, key=lambda name: avoidable[name])
    computing = shares.get(COMPUTE, 0.0) + shares.get(OPTIMIZER, 0.0)
    unexplained = shares.get(UNEXPLAINED, 0.0)
    if unexplained >= max(LEAST_SHARE, avoidable[word]):
        return UNCLEAR, unexplained, f"{percent(unexplained)} of the time was not measured"
    if avoidable[word] >= LEAST_SHARE:
        return word, avoidable[word], ""
    if lacking:
        return UNCLEAR, avoidable[word], f"the log does not tell {' nor '.join(lacking)}"
    if computing >= 0.5:
        return COMPUTE, computing, ""
    return UNCLEAR, avoidable[word], "no single cause takes a quarter of the time"


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
