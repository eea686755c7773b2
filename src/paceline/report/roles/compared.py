"""Two runs that share the work of a step in different ways: what each waits for, and what it buys.

Pure. Per hour is one thing and per sample another: a run that waits for nobody does more updates
with older weights.
"""

import numpy as np

from paceline.report.answers.words import listed, score_value
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import series
from paceline.report.facts.network import ring_bytes
from paceline.report.facts.trend import Numbers, Points
from paceline.report.roles.answer import in_words
from paceline.report.roles.use import RolesUse
from paceline.report.speed import Speed, ratio_of
from paceline.report.worth import seconds_to
from paceline.units import format_bytes, format_seconds, percent, plural

_SAME_SCORE = 1e-9


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


def _per_hour_and_sample(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    base, now = speeds
    ratio = ratio_of(base, now)
    unit = plural(now.unit)
    hour = f"per hour {now.run} trains {ratio:.2f} times as many {unit} as {base.run}"
    scores = _scores_at(runs)
    if scores is None:
        return f"{hour.capitalize()}; what that is worth cannot be told without common scores."
    return f"{hour.capitalize()}. {scores}"


def _scores_at(runs: tuple[Facts, Facts]) -> str | None:
    """Scores after as many samples, and after as much time, as both had."""
    by = runs[0].learning.best_by
    curves = [series(facts.learning.scores, by) for facts in runs]
    if runs[1].learning.best_by != by or not all(map(len, curves)):
        return None
    samples = [_units_at(f, c.steps) for f, c in zip(runs, curves, strict=True)]
    seconds = [seconds_to(f, c.steps) for f, c in zip(runs, curves, strict=True)]
    same_samples, same_time = _last_common(samples), _last_common(seconds)
    told = []
    if same_samples is not None:
        values = _values(samples, curves, same_samples)
        told.append(f"After {same_samples:,.0f} {plural(runs[0].unit)} {_shown(runs, by, values)}")
    if same_time is not None:
        values = _values(seconds, curves, same_time)
        told.append(f"after {format_seconds(same_time)} {_shown(runs, by, values)}")
    return f"{'; '.join(told)}." if told else None


def _units_at(facts: Facts, steps: Numbers) -> Numbers:
    if facts.rows is None or not len(facts.rows):
        return 0.0 * steps
    done = np.cumsum(np.nan_to_num(facts.rows["num_units"]))
    return np.interp(steps, facts.rows["step"], done)


def _last_common(places: list[Numbers]) -> float | None:
    """The farthest point up to which both have scores."""
    last = min(float(each[-1]) for each in places)
    return last if all(float(each[0]) <= last for each in places) else None


def _values(places: list[Numbers], curves: list[Points], at: float) -> list[float]:
    """Between two evaluations, on the straight line between them."""
    return [
        float(np.interp(at, place, curve.values))
        for place, curve in zip(places, curves, strict=True)
    ]


def _shown(runs: tuple[Facts, Facts], by: str, values: list[float]) -> str:
    texts = [f"{f.run} has {by} {score_value(f, by, v)}" for f, v in zip(runs, values, strict=True)]
    if abs(values[0] - values[1]) < _SAME_SCORE:
        return f"both have {by} {score_value(runs[0], by, values[0])}"
    return " and ".join(texts)
