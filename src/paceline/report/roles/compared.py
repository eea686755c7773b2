"""Two runs that share the work of a step in different ways: what each waits for, and what it buys.

Pure. Per hour is one thing and per sample another: a run that waits for nobody does more updates
with older weights.
"""

from dataclasses import dataclass

import numpy as np

from paceline.record.schema import START_UP
from paceline.report.answers.words import listed, score_value
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import series
from paceline.report.facts.network import ring_bytes
from paceline.report.facts.trend import Numbers, Points
from paceline.report.roles.answer import in_words
from paceline.report.roles.use import RolesUse
from paceline.report.speed import Speed
from paceline.report.worth import seconds_to
from paceline.units import format_bytes, format_seconds, percent, plural

_SAME_SCORE = 1e-9
_SAME_SHARE = 0.005
"""Of a score: two runs that differ by less learn alike."""
_SAME_SPEED = 0.05
"""Two equal runs differ by about so much."""


def strategy_sentences(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> list[str]:
    """Nothing where both share the work in the same way."""
    if _kind(runs[0]) == _kind(runs[1]) or not all(facts.is_own for facts in runs):
        return []
    found = [*(_waits(facts) for facts in runs), _traffic(runs), _per_hour_and_sample(runs, speeds)]
    return [text for text in found if text]


def _kind(facts: Facts) -> str:
    return "all-reduce" if facts.roles is None else f"parameter servers, {in_words(facts.roles)}"


def _waits(facts: Facts) -> str:
    found = facts.verdict
    if not found.step_seconds:
        return ""
    waited = {name: found.shares.get(name, 0.0) for name in _WAITING}
    told = [
        f"{percent(share)} of its time for {_WAITING[name]}"
        for name, share in waited.items()
        if share > 0.02
    ]
    late = found.straggler
    who = f" (the slow one is rank {late.rank})" if late is not None else ""
    text = listed(told) if told else "hardly at all"
    return f"{facts.run} ({_kind(facts)}) waits {text}{who}.{_shares(facts.roles)}"


_WAITING = {
    "straggler": "one slow process",
    "server link": "gradients and weights on their way",
    "server compute": "servers that update",
    "network": "the others",
    "input": "input",
}


def _shares(roles: RolesUse | None) -> str:
    """Out of step a slow worker does less, and nobody waits for it."""
    if roles is None or roles.is_sync or len(roles.trainers) < 2:
        return ""
    made = sorted((use.num_steps, use.name) for use in roles.trainers)
    (least, slow), (most, fast) = made[0], made[-1]
    return (
        f" Nobody waits for a slow worker: {slow} made {least:,} updates where {fast} made "
        f"{most:,}, with gradients that were {roles.mean_staleness:.1f} updates old on average."
    )


def _traffic(runs: tuple[Facts, Facts]) -> str:
    servers = next((facts for facts in runs if facts.roles is not None), None)
    ring = next((facts for facts in runs if facts.roles is None), None)
    if servers is None or ring is None or servers.roles is None:
        return ""
    gradients, size = ring.world.gradient_bytes, ring.world.size or 1
    busiest = max(
        (s.sent_bytes + s.received_bytes for s in servers.roles.servers), default=0.0
    ) / max(servers.num_steps, 1)
    if not gradients or not busiest or size < 2:
        return ""
    per_process = 2 * ring_bytes(size, gradients)
    return (
        f"An update moves {format_bytes(busiest)} through the busiest server of {servers.run}; "
        f"all-reduce moves {format_bytes(per_process)} through each of its {size} processes, sent "
        "and received, whatever their number."
    )


@dataclass(frozen=True)
class Standing:
    """Scores of both runs at a point that both have reached."""

    at: float
    """Samples or seconds."""
    values: tuple[float, float]


def _per_hour_and_sample(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    base, now = speeds
    ratio, unit = _per_hour(runs[1]) / _per_hour(runs[0]), plural(now.unit)
    hour = (
        f"Per hour, with evaluations and whatever was done again, {now.run} trains {ratio:.2f} "
        f"times as many {unit} as {base.run}"
    )
    by = runs[0].learning.best_by
    curves = [series(facts.learning.scores, by) for facts in runs]
    if runs[1].learning.best_by != by or not all(map(len, curves)):
        return f"{hour}; what that is worth cannot be told without common scores."
    samples = _standing([_units_at(f, c.steps) for f, c in zip(runs, curves, strict=True)], curves)
    seconds = _standing([seconds_to(f, c.steps) for f, c in zip(runs, curves, strict=True)], curves)
    told = []
    if samples is not None:
        told.append(f"after {samples.at:,.0f} {unit} {_shown(runs, by, samples.values)}")
    if seconds is not None:
        told.append(f"after {format_seconds(seconds.at)} {_shown(runs, by, seconds.values)}")
    sign = -1 if runs[0].learning.lower_is_better else 1
    conclusion = in_conclusion(now.run, ratio, _gain(samples, sign), _gain(seconds, sign))
    scores = f" {_sentence('; '.join(told))}." if told else ""
    return f"{hour}.{scores}{conclusion}"


def _per_hour(facts: Facts) -> float:
    """Units that count, of all time but the first start-up: a lost process may cost a round."""
    start_up = facts.phases.get(START_UP, 0.0) / max(len(facts.attempts), 1)
    return 3600 * facts.num_units / max(facts.wall_seconds - start_up, 1e-9)


def _gain(standing: Standing | None, sign: int) -> float | None:
    """By how much, of the first run's score, the second one's is better."""
    if standing is None:
        return None
    before, after = standing.values
    return sign * (after - before) / max(abs(before), _SAME_SCORE)


def in_conclusion(
    run: str, speed_up: float, by_samples: float | None, by_time: float | None
) -> str:
    """What the second run wins and loses; nothing without scores after as many samples."""
    if by_samples is None:
        return ""
    hour = _outcome(speed_up - 1, _SAME_SPEED, ("wins", "loses", "is as good"))
    sample = _outcome(by_samples, _SAME_SHARE, ("wins", "loses", "is as good"))
    joined = f"{hour} per hour and per sample"
    if hour != sample:
        joined = f"{hour} per hour and {sample} per sample"
    if by_time is None:
        return f" So {run} {joined}."
    time = _outcome(by_time, _SAME_SHARE, ("it is ahead", "it is behind", "both are as far"))
    return f" So {run} {joined}; after the same time {time}."


def _outcome(difference: float, least: float, words: tuple[str, str, str]) -> str:
    better, worse, same = words
    if abs(difference) < least:
        return same
    return better if difference > 0 else worse


def _sentence(text: str) -> str:
    """With a capital letter; the rest stays, because paths have capital letters too."""
    return text[:1].upper() + text[1:]


def _units_at(facts: Facts, steps: Numbers) -> Numbers:
    if facts.rows is None or not len(facts.rows):
        return 0.0 * steps
    done = np.cumsum(np.nan_to_num(facts.rows["num_units"]))
    return np.interp(steps, facts.rows["step"], done)


def _standing(places: list[Numbers], curves: list[Points]) -> Standing | None:
    """At the farthest point up to which both have scores; between two evaluations, on the straight
    line between them."""
    last = min(float(each[-1]) for each in places)
    if any(float(each[0]) > last for each in places):
        return None
    first, second = (
        float(np.interp(last, place, curve.values))
        for place, curve in zip(places, curves, strict=True)
    )
    return Standing(last, (first, second))


def _shown(runs: tuple[Facts, Facts], by: str, values: tuple[float, float]) -> str:
    texts = [f"{f.run} has {by} {score_value(f, by, v)}" for f, v in zip(runs, values, strict=True)]
    if abs(values[0] - values[1]) < _SAME_SCORE:
        return f"both have {by} {score_value(runs[0], by, values[0])}"
    return " and ".join(texts)
