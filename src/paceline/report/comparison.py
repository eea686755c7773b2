"""Comparing runs: what did the second machine buy, and is it the machine that bought it?"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.record.schema import COMPUTE, NETWORK
from paceline.report.answers.words import listed
from paceline.report.differences import shown, what_differs
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import series
from paceline.report.facts.trend import Numbers, in_groups
from paceline.report.facts.world_times import LOOP
from paceline.units import format_seconds, percent, plural

_PER_UNITS = 1000
_MOST_POINTS = 200
_MOST_GAIN = 1.15
"""Times perfect scaling: caches may help a little, but not more than that."""


@dataclass(frozen=True)
class Speed:
    """One run, reduced to what a comparison needs."""

    run: str
    unit: str
    world_size: int
    num_hosts: int
    units_per_second: float
    step_seconds: float
    seconds_per_1000_units: dict[str, float]
    """By phase of the loop: wall time, so that more processes make it less."""
    cpu_seconds_per_1000_units: float
    wall_seconds: float
    num_threads: int | None
    """Of all processes together, where they share one host."""
    verdict: str


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
    table: list[list[str]]
    """Rows of text; the first is the heading."""
    sentences: list[str]
    figures: dict[str, Any] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)
    curves: list[RunCurve] = field(default_factory=list)


def compare(runs: list[Facts]) -> Comparison:
    speeds = [speed_of(facts) for facts in runs]
    sentences: list[str] = []
    figures: dict[str, Any] = {"against_first": []}
    for facts, speed in zip(runs[1:], speeds[1:], strict=True):
        found = _judge(runs[0], facts, (speeds[0], speed))
        sentences += found.pop("sentences")
        figures["against_first"].append(found)
    return Comparison(
        runs=[speed.run for speed in speeds],
        table=_table(runs, speeds),
        sentences=sentences,
        figures=figures,
        speeds=speeds,
        curves=[_curve(facts) for facts in runs],
    )


def _curve(facts: Facts) -> RunCurve:
    loss = facts.learning.loss
    steps, values = in_groups(loss.steps, loss.values, _MOST_POINTS)
    scores = series(facts.learning.scores, facts.learning.best_by)
    return RunCurve(
        run=str(facts.run),
        minutes=_seconds_to(facts, steps) / 60,
        loss=values,
        score_minutes=_seconds_to(facts, scores.steps) / 60,
        score=scores.values,
    )


def speed_of(facts: Facts) -> Speed:
    times, num_steps = facts.world.times, max(facts.num_steps, 1)
    units_per_step = facts.num_units / num_steps
    step_seconds = facts.verdict.step_seconds
    per_1000 = _PER_UNITS / units_per_step if units_per_step else math.nan
    threads = facts.environment.get("threads")
    return Speed(
        run=str(facts.run),
        unit=facts.unit,
        world_size=(facts.world.size or 1),
        num_hosts=(facts.world.num_hosts or 1),
        units_per_second=units_per_step / step_seconds if step_seconds else math.nan,
        step_seconds=step_seconds,
        seconds_per_1000_units={
            phase: times.per_step(phase) * per_1000 if times is not None else math.nan
            for phase in LOOP
        },
        cpu_seconds_per_1000_units=facts.world.cpu_seconds / num_steps * per_1000,
        wall_seconds=facts.wall_seconds,
        num_threads=threads * (facts.world.size or 1) if isinstance(threads, int) else None,
        verdict=facts.verdict.word,
    )


def _judge(first: Facts, other: Facts, speeds: tuple[Speed, Speed]) -> dict[str, Any]:
    base, now = speeds
    if not (base.step_seconds and now.step_seconds):
        return {"run": now.run, "sentences": [f"{now.run} or {base.run} has no steps to compare."]}
    if base.unit != now.unit:
        return {
            "run": now.run,
            "sentences": [
                f"{now.run} counts {plural(now.unit)}, {base.run} counts {plural(base.unit)}: they "
                "cannot be compared."
            ],
        }
    ratio = now.units_per_second / base.units_per_second
    more = now.world_size / base.world_size
    others = what_differs(first, other)
    sentences = [_speed_sentence(base, now, ratio), _phase_sentence(base, now)]
    sentences += [_credit_sentence(speeds, others), *_to_same_score(first, other)]
    return {
        "run": now.run,
        "speed_up": ratio,
        "efficiency_per_process": ratio / more,
        "efficiency_per_host": ratio / (now.num_hosts / base.num_hosts),
        "differences": others,
        "sentences": [text for text in sentences if text],
    }


def _speed_sentence(base: Speed, now: Speed, ratio: float) -> str:
    processes, hosts = now.world_size / base.world_size, now.num_hosts / base.num_hosts
    text = (
        f"{now.run} did {ratio:.2f} times as many {plural(now.unit)} a second as {base.run} "
        f"({now.units_per_second:,.0f} to {base.units_per_second:,.0f})"
    )
    if processes == 1 and hosts == 1:
        return f"{text} with as many processes and hosts."
    used = [f"{processes:g} times the processes"] if processes != 1 else []
    used += [f"{hosts:g} times the hosts"] if hosts != 1 else []
    rate = f"{percent(ratio / processes)} per process"
    rate += f", {percent(ratio / hosts)} per host" if hosts not in (1, processes) else ""
    return f"{text} with {' on '.join(used)}: an efficiency of {rate}."


def _phase_sentence(base: Speed, now: Speed) -> str:
    """Which phase took less, and which took more, of the time of one unit."""
    before, after = base.seconds_per_1000_units, now.seconds_per_1000_units
    total = sum(before.values())
    changes = {phase: after[phase] - before[phase] for phase in LOOP}
    shown = sorted(changes, key=lambda phase: -abs(changes[phase]))
    parts = [
        f"{phase} {'shrank' if changes[phase] < 0 else 'grew'} from "
        f"{format_seconds(before[phase])} to {format_seconds(after[phase])}"
        for phase in shown
        if abs(changes[phase]) > 0.02 * total
    ]
    if not parts:
        return f"Per {now.unit}, no phase changed by more than 2 % of the time."
    return f"Per 1,000 {plural(now.unit)}, {listed(parts)}.{_ideal(base, now)}"


def _ideal(base: Speed, now: Speed) -> str:
    processes = now.world_size / base.world_size
    if processes <= 1:
        return ""
    wanted = base.seconds_per_1000_units[COMPUTE] / processes
    missed = now.seconds_per_1000_units[COMPUTE] - wanted
    waiting = now.seconds_per_1000_units[NETWORK] - base.seconds_per_1000_units[NETWORK] / processes
    lost = {"compute that did not divide by the processes": missed, "waiting for others": waiting}
    worst = max(lost, key=lambda name: lost[name])
    ideal = sum(base.seconds_per_1000_units.values()) / processes
    if lost[worst] < 0.03 * ideal:
        return ""
    return f" What is lost against perfect scaling is mostly {worst}."


def _credit_sentence(speeds: tuple[Speed, Speed], others: list[dict[str, str]]) -> str:
    """Whom the difference is due to, as far as anything but the machines is known to differ."""
    base, now = speeds
    is_same_world = (base.world_size, base.num_hosts) == (now.world_size, now.num_hosts)
    told = [
        f"{entry['name']} ({entry['first']} to {entry['other']})"
        for entry in others
        if not entry["name"].startswith("settings.")
    ]
    if told:
        more = "" if is_same_world else " more than the number of machines"
        return (
            f"They differ in{more}: {listed(told)}. So the difference in speed is not to be "
            "credited to the machines alone."
        )
    if is_same_world:
        return f"Recipe, data, software and machines are the same{_what_then(base, now)}."
    if now.units_per_second / base.units_per_second > _MOST_GAIN * now.world_size / base.world_size:
        return (
            "Recipe, data and software are the same, but more than perfect scaling is no merit of "
            f"the machines: something else, such as other load, held {base.run} back."
        )
    if _is_same_hardware(base, now):
        return (
            "Recipe, data and software are the same, and both ran on one host with as many "
            "threads in all: it is how its cores were shared out, not more hardware."
        )
    return "Recipe, data and software are the same, so the difference is the machines'."


def _what_then(base: Speed, now: Speed) -> str:
    """Two runs of the same: what is left to explain a difference."""
    if base.verdict != now.verdict:
        return f"; what held them up differs: {base.verdict} there, {now.verdict} here"
    cpu = [speed.cpu_seconds_per_1000_units for speed in (base, now)]
    if min(cpu) > 0 and max(cpu) < 1.15 * min(cpu):
        return (
            f", and so is the processor time of 1,000 {plural(now.unit)} "
            f"({format_seconds(cpu[0])} to {format_seconds(cpu[1])}): the difference is waiting, "
            "for other load on the machine or for the network"
        )
    return ": the difference is chance or load"


def _is_same_hardware(base: Speed, now: Speed) -> bool:
    both = base.num_hosts == now.num_hosts == 1
    return both and base.num_threads is not None and base.num_threads == now.num_threads


def _to_same_score(first: Facts, other: Facts) -> list[str]:
    """The time to the best score that both reached, which a larger batch does not flatter."""
    by = first.learning.best_by
    curves = [series(facts.learning.scores, by) for facts in (first, other)]
    if any(not len(curve) for curve in curves) or by != other.learning.best_by:
        return []
    goal = min(float(curve.values.max()) for curve in curves)
    before, after = (
        float(_seconds_to(facts, curve.steps[[np.argmax(curve.values >= goal)]])[0])
        for facts, curve in zip((first, other), curves, strict=True)
    )
    return [
        f"To {by} {goal:.4g}, which both reached, {first.run} took {format_seconds(before)} and "
        f"{other.run} {format_seconds(after)}, {before / max(after, 1e-9):.2f} times as fast."
    ]


def _seconds_to(facts: Facts, steps: Numbers) -> Numbers:
    """Since the start of the run, without what was lost and done again."""
    rows = facts.rows
    if rows is None or not len(rows):
        return 0.0 * steps
    done = np.cumsum(np.nan_to_num(rows["seconds"]))
    start_up = facts.phases.get("start-up", 0.0)
    return start_up + np.interp(steps, rows["step"], done)


def _table(runs: list[Facts], speeds: list[Speed]) -> list[list[str]]:
    unit = plural(speeds[0].unit)
    rows = [
        ["", *(speed.run for speed in speeds)],
        ["processes", *(str(speed.world_size) for speed in speeds)],
        ["hosts", *(str(speed.num_hosts) for speed in speeds)],
        ["global batch", *(shown(facts.data.global_batch) for facts in runs)],
        [f"{unit}/s", *(f"{speed.units_per_second:,.0f}" for speed in speeds)],
        ["step", *(format_seconds(speed.step_seconds) for speed in speeds)],
        ["wall time", *(format_seconds(speed.wall_seconds) for speed in speeds)],
    ]
    for phase in LOOP:
        values = [speed.seconds_per_1000_units[phase] for speed in speeds]
        if any(value > 0.002 * sum(speeds[0].seconds_per_1000_units.values()) for value in values):
            rows.append([f"{phase} per 1,000", *map(format_seconds, values)])
    if all(speed.cpu_seconds_per_1000_units for speed in speeds):
        cells = [format_seconds(speed.cpu_seconds_per_1000_units) for speed in speeds]
        rows.append(["CPU time per 1,000", *cells])
    rows.append(["verdict", *(facts.verdict.word for facts in runs)])
    rows.append(["best score", *map(_best, runs)])
    return rows


def _best(facts: Facts) -> str:
    by = facts.learning.best_by
    scores = series(facts.learning.scores, by)
    return f"{by} {scores.values.max():.4g}" if len(scores) else "-"
