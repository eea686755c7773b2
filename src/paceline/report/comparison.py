"""Comparing runs: what did the second machine buy, and is it the machine that bought it?"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paceline.report.answers.words import format_money, listed, score_value
from paceline.report.differences import (
    in_words,
    is_same_machine,
    shown,
    what_changes_learning,
    what_differs,
)
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import best_of, series
from paceline.report.facts.trend import Numbers, in_groups
from paceline.report.facts.world_times import LOOP
from paceline.report.loading import input_share, loader_workers, loading_sentence
from paceline.report.roles.compared import strategy_sentences
from paceline.report.scaling import ScalingPoint, scaling_of, scaling_sentence
from paceline.report.speed import (
    EPOCH,
    Speed,
    phase_sentence,
    rates_of,
    ratio_of,
    shared_differently,
    speed_sentence,
    speeds_of,
    too_good,
    too_good_sentence,
    why_same_differs,
)
from paceline.report.worth import (
    Goal,
    Spent,
    common_goal,
    disturbance,
    figures,
    judge,
    seconds_to,
    spent_by,
)
from paceline.units import format_seconds, percent, plural

_MOST_POINTS = 200
_LEAST_SHOWN = 0.02
"""Of the wall time: start-ups that differ by less are not worth a row."""


@dataclass(frozen=True)
class RunCurve:
    """Loss and score over the time since the start, so that different steps compare."""

    run: str
    minutes: Numbers
    loss: Numbers
    score_minutes: Numbers
    score: Numbers


@dataclass(frozen=True)
class Comparison:
    runs: list[str]
    opening: list[str]
    """Whether each was worth it, against the first."""
    table: list[list[str]]
    """Rows of text; the first is the heading."""
    sentences: list[str]
    figures: dict[str, Any] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)
    curves: list[RunCurve] = field(default_factory=list)
    scaling: list[ScalingPoint] = field(default_factory=list)
    """Of three runs and more, from the fewest processes to the most."""


def compare(runs: list[Facts]) -> Comparison:
    speeds, goal = speeds_of(runs), common_goal(runs)
    scaling = scaling_of(speeds)
    spent = [spent_by(facts, goal) for facts in runs]
    opening: list[str] = []
    sentences: list[str] = []
    against_first: list[dict[str, Any]] = []
    for n in range(1, len(runs)):
        found = _against_first(
            (runs[0], runs[n]), (speeds[0], speeds[n]), (spent[0], spent[n]), goal
        )
        opening.append(found.pop("opening"))
        sentences += found.pop("sentences")
        against_first.append(found)
    return Comparison(
        runs=[speed.run for speed in speeds],
        opening=opening,
        table=_table(runs, speeds, spent, goal),
        sentences=[*sentences, *filter(None, [scaling_sentence(scaling)])],
        figures={"against_first": against_first},
        scaling=scaling,
        speeds=speeds,
        curves=[_curve(facts) for facts in runs],
    )


def _against_first(
    runs: tuple[Facts, Facts],
    speeds: tuple[Speed, Speed],
    spent: tuple[Spent, Spent],
    goal: Goal | None,
) -> dict[str, Any]:
    differences, learning = what_differs(*runs), what_changes_learning(*runs)
    told = in_words(differences), in_words(learning)
    worth = judge(runs, speeds, spent, goal, told)
    base, now = speeds
    found: dict[str, Any] = {
        "run": now.run,
        "opening": f"Worth it ({now.run} against {base.run}): {worth.answer}, because "
        f"{worth.because}.",
        "sentences": [],
        "differences": differences,
        "differences_in_learning": learning,
        **figures(worth, spent, goal),
    }
    if not (base.step_seconds and now.step_seconds) or base.unit != now.unit:
        return found
    ratio = ratio_of(base, now)
    loading = loading_sentence(runs, speeds)
    sentences = [
        speed_sentence(base, now),
        too_good_sentence(base, now, bool(loading)),
        loading,
        phase_sentence(base, now),
        *strategy_sentences(runs, speeds),
        _credit_sentence(runs, speeds, told[0]),
        _learning_sentence(told[1]),
    ]
    is_world_known = base.is_world_known and now.is_world_known
    are_hosts_known = base.are_hosts_known and now.are_hosts_known
    per_process = ratio * base.world_size / now.world_size if is_world_known else None
    per_host = ratio * base.num_hosts / now.num_hosts if are_hosts_known else None
    return found | {
        "speed_up": ratio,
        "unit": base.unit,
        "efficiency_per_process": per_process,
        "efficiency_per_host": per_host,
        "sentences": [text for text in sentences if text],
    }


def _credit_sentence(
    runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed], told: list[str]
) -> str:
    """What the difference in speed is due to, as far as anything is known to differ."""
    base, now = speeds
    is_same_world = (base.world_size, base.num_hosts) == (now.world_size, now.num_hosts)
    shared = shared_differently(base, now)
    if not all(facts.is_own for facts in runs):
        return _credit_of_logs(told)
    if told and is_same_machine(*runs):
        cut = f" They ran with {shared}, so only the way to share the cores differs." * bool(shared)
        return f"Both ran on the same machine. They differ in: {listed(told)}.{cut}"
    if told:
        more = "" if is_same_world else " more than the number of machines"
        end = "" if is_same_world else " So the machines alone do not explain the speed."
        return f"They differ in{more}: {listed(told)}.{end}"
    if is_same_world:
        return f"Recipe, data, software and machines are the same{why_same_differs(base, now)}."
    return f"Recipe, data and software are the same{_what_is_left(runs, speeds, shared)}."


def _credit_of_logs(told: list[str]) -> str:
    """A log tells little of how it was made: what it does not say may differ as well."""
    if told:
        return f"They differ in: {listed(told)}; what the logs do not tell may differ as well."
    return (
        "The logs tell of nothing else that differs, which does not mean that nothing does: model, "
        "batch, precision and data are only known where they were printed."
    )


def _what_is_left(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed], shared: str) -> str:
    """To explain the difference, if only processes and hosts are others."""
    if too_good(*speeds):
        return ""
    if shared:
        return (
            f", and both ran on one host with {shared}: only the way to share its cores differs, "
            "not the hardware"
        )
    if disturbance(runs):
        return ", but other programs used the machine too, so nothing can be credited for sure"
    if is_same_machine(*runs):
        return ", and both ran on the same machine: the number of processes makes the difference"
    return ", so the machines make the difference"


def _learning_sentence(told: list[str]) -> str:
    if not told:
        return ""
    return f"What they learn may differ as well, because of: {listed(told)}."


def _curve(facts: Facts) -> RunCurve:
    loss = facts.learning.loss
    steps, values = in_groups(loss.steps, loss.values, _MOST_POINTS)
    scores = series(facts.learning.scores, facts.learning.best_by)
    return RunCurve(
        run=str(facts.run),
        minutes=seconds_to(facts, steps) / 60,
        loss=values,
        score_minutes=seconds_to(facts, scores.steps) / 60,
        score=scores.values,
    )


def _table(
    runs: list[Facts], speeds: list[Speed], spent: list[Spent], goal: Goal | None
) -> list[list[str]]:
    """What it took first, then how fast it was and why."""
    rows = [["", *(speed.run for speed in speeds)], *_spent_rows(spent, goal)]
    unit = plural(speeds[0].unit)
    batches = [facts.data.global_batch for facts in runs]
    rates, word = rates_of(speeds)
    rows += [
        ["processes", *(str(s.world_size) if s.is_world_known else "-" for s in speeds)],
        ["hosts", *(str(s.num_hosts) if s.are_hosts_known else "-" for s in speeds)],
        ["global batch", *("-" if batch is None else shown(batch) for batch in batches)],
        [f"{unit}/{word[0]}", *rates],
        ["mean step", *(_if_known(speed.step_seconds, format_seconds) for speed in speeds)],
        *([] if unit == plural(EPOCH) else _phase_rows(speeds)),
        *_input_rows(runs),
    ]
    if all(speed.cpu_seconds_per_1000_units for speed in speeds):
        cells = [format_seconds(speed.cpu_seconds_per_1000_units) for speed in speeds]
        spins = ", with spinning" if any(speed.may_spin for speed in speeds) else ""
        rows.append([f"CPU time per 1,000{spins}", *cells])
    rows.append(["verdict", *(facts.verdict.word for facts in runs)])
    rows.append(["best score", *map(_best, runs)])
    return rows


def _spent_rows(spent: list[Spent], goal: Goal | None) -> list[list[str]]:
    rows = []
    to_goal = [each.seconds_to_goal for each in spent]
    if goal is not None and any(to_goal):
        rows.append([f"time to {goal}", *(_if_known(s or 0.0, format_seconds) for s in to_goal)])
    walls = [each.wall_seconds for each in spent]
    rows.append(["wall time", *map(format_seconds, walls)])
    hours = [each.host_hours(each.wall_seconds) if each.are_hosts_known else 0.0 for each in spent]
    rows.append(["host-hours", *(_if_known(hour, "{:.3g}".format) for hour in hours)])
    costs = [each.price(each.wall_seconds) for each in spent]
    if any(cost is not None for cost in costs):
        rows.append(["price", *("-" if cost is None else format_money(cost) for cost in costs)])
    starts = [each.start_up_seconds for each in spent]
    if max(starts) - min(starts) > _LEAST_SHOWN * min(walls):
        rows.append(["start-up", *(_if_known(start, format_seconds) for start in starts)])
    return rows


def _phase_rows(speeds: list[Speed]) -> list[list[str]]:
    least = 0.002 * speeds[0].loop_seconds_per_1000_units
    values = {phase: [s.seconds_per_1000_units[phase] for s in speeds] for phase in LOOP}
    return [
        [f"{phase} per 1,000", *(_if_known(v, format_seconds) for v in own)]
        for phase, own in values.items()
        if any(value > least for value in own)
    ]


def _input_rows(runs: list[Facts]) -> list[list[str]]:
    """Of logs, which print little else about a step."""
    if all(facts.is_own for facts in runs):
        return []
    shares, workers = [input_share(f) for f in runs], [loader_workers(f) for f in runs]
    rows = [["waiting for input", *("-" if s is None else percent(s) for s in shares)]]
    if any(count is not None for count in workers):
        rows.append(["loader workers", *("-" if w is None else str(w) for w in workers)])
    ranks = [facts.world.rank_inputs for facts in runs]
    if any(ranks):
        rows.append(["slowest rank", *map(_slowest_rank, runs)])
    return rows


def _slowest_rank(facts: Facts) -> str:
    slowest = max(facts.world.rank_inputs, key=lambda rank: rank.input_share, default=None)
    return "-" if slowest is None else f"{slowest.name} ({percent(slowest.input_share)})"


def _if_known(value: float, shown_as: Callable[[float], str]) -> str:
    return shown_as(value) if value and math.isfinite(value) else "-"


def _best(facts: Facts) -> str:
    by = facts.learning.best_by
    scores = series(facts.learning.scores, by)
    return f"{by} {score_value(facts, by, best_of(scores, facts.learning))}" if len(scores) else "-"
