"""Comparing runs: what did the second machine buy, and is it the machine that bought it?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.record.schema import COMPUTE, NETWORK
from paceline.report.answers_rate import global_batch
from paceline.report.answers_training import series
from paceline.report.data import trained_with
from paceline.report.summary import Summary
from paceline.report.trend import Numbers, in_groups
from paceline.report.verdict import LOOP
from paceline.report.wording import listed, percent
from paceline.units import format_seconds, plural

_PER_UNITS = 1000
_MOST_POINTS = 200
_MOST_GAIN = 1.15
"""Times perfect scaling: caches may help a little, but not more than that."""
_NOT_SPEED = (
    "about",
    "seed",
    "steps",
    "log",
    "guard",
    "target",
    "evaluate",
    "schedule",
    "label_smoothing",
    "batch.global",
    "batch.per_device",
)
_SOFTWARE = ("paceline", "python", "libraries", "platform", "settings")
_HARDWARE = ("device_name", "num_cores", "memory_bytes")


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


def compare(summaries: list[Summary]) -> Comparison:
    speeds = [speed_of(summary) for summary in summaries]
    sentences: list[str] = []
    figures: dict[str, Any] = {"against_first": []}
    for summary, speed in zip(summaries[1:], speeds[1:], strict=True):
        found = _judge(summaries[0], summary, (speeds[0], speed))
        sentences += found.pop("sentences")
        figures["against_first"].append(found)
    return Comparison(
        runs=[speed.run for speed in speeds],
        table=_table(summaries, speeds),
        sentences=sentences,
        figures=figures,
        speeds=speeds,
        curves=[_curve(summary) for summary in summaries],
    )


def _curve(summary: Summary) -> RunCurve:
    steps, loss = in_groups(summary.curves["step"], summary.curves["loss"], _MOST_POINTS)
    score_steps, score = series(summary.scores, summary.best_by)
    return RunCurve(
        run=str(summary.run),
        minutes=_seconds_to(summary, steps) / 60,
        loss=loss,
        score_minutes=_seconds_to(summary, score_steps) / 60,
        score=score,
    )


def speed_of(summary: Summary) -> Speed:
    curves, times = summary.curves, summary.times
    num_steps = max(curves.total("num_steps"), 1.0)
    units_per_step = curves.total("num_units") / num_steps
    step_seconds = summary.verdict.step_seconds
    per_1000 = _PER_UNITS / units_per_step if units_per_step else math.nan
    threads = summary.environment.get("threads")
    return Speed(
        run=str(summary.run),
        unit=str(summary.facts.get("unit", "unit")),
        world_size=summary.world_size,
        num_hosts=summary.num_hosts,
        units_per_second=units_per_step / step_seconds if step_seconds else math.nan,
        step_seconds=step_seconds,
        seconds_per_1000_units={phase: times.per_step(phase) * per_1000 for phase in LOOP},
        cpu_seconds_per_1000_units=summary.cpu_seconds / num_steps * per_1000,
        wall_seconds=summary.story.wall_seconds,
        num_threads=threads * summary.world_size if isinstance(threads, int) else None,
        verdict=summary.verdict.word,
    )


def _judge(first: Summary, other: Summary, speeds: tuple[Speed, Speed]) -> dict[str, Any]:
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


def what_differs(first: Summary, other: Summary) -> list[dict[str, str]]:
    """Everything but the number of machines that may explain a difference in speed.

    What one of the two does not tell is no difference: older runs know fewer settings.
    """
    before, after = _all_facts(first), _all_facts(other)
    return [
        {"name": name, "first": _text(before[name]), "other": _text(after[name])}
        for name in before
        if name in after and before[name] != after[name]
    ]


def _all_facts(summary: Summary) -> dict[str, Any]:
    found = {
        name: value
        for name, value in _flat(summary.settings)
        if not any(name == skip or name.startswith(f"{skip}.") for skip in _NOT_SPEED)
    }
    known = {
        "global batch": global_batch(summary),
        "data (fingerprint)": _fingerprint(summary),
        "loader workers": summary.facts.get("loader_workers"),
        "device": summary.facts.get("device"),
    }
    for name in (*_SOFTWARE, *_HARDWARE):
        value = summary.environment.get(name)
        known |= dict(_flat({name: value}))
    if known["data (fingerprint)"] is not None:
        found.pop("data", None)  # the same files may lie elsewhere
    return found | {name: value for name, value in known.items() if value is not None}


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fingerprint(summary: Summary) -> str | None:
    return trained_with(summary.checkpoint) or (summary.data.fingerprint if summary.data else None)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


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


def _to_same_score(first: Summary, other: Summary) -> list[str]:
    """The time to the best score that both reached, which a larger batch does not flatter."""
    by = first.best_by
    curves = [series(summary.scores, by) for summary in (first, other)]
    if any(not len(values) for _, values in curves) or by != other.best_by:
        return []
    goal = min(float(values.max()) for _, values in curves)
    before, after = (
        float(_seconds_to(summary, steps[[np.argmax(values >= goal)]])[0])
        for summary, (steps, values) in zip((first, other), curves, strict=True)
    )
    return [
        f"To {by} {goal:.4g}, which both reached, {first.run} took {format_seconds(before)} and "
        f"{other.run} {format_seconds(after)}, {before / max(after, 1e-9):.2f} times as fast."
    ]


def _seconds_to(summary: Summary, steps: Numbers) -> Numbers:
    """Since the start of the run, without what was lost and done again."""
    done = np.cumsum(np.nan_to_num(summary.curves["seconds"]))
    start_up = summary.story.phases.get("start-up", 0.0)
    return start_up + np.interp(steps, summary.curves["step"], done) if len(done) else 0.0 * steps


def _table(summaries: list[Summary], speeds: list[Speed]) -> list[list[str]]:
    unit = plural(speeds[0].unit)
    rows = [
        ["", *(speed.run for speed in speeds)],
        ["processes", *(str(speed.world_size) for speed in speeds)],
        ["hosts", *(str(speed.num_hosts) for speed in speeds)],
        ["global batch", *(_text(global_batch(summary)) for summary in summaries)],
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
    rows.append(["verdict", *(summary.verdict.word for summary in summaries)])
    rows.append(["best score", *map(_best, summaries)])
    return rows


def _best(summary: Summary) -> str:
    _, values = series(summary.scores, summary.best_by)
    return f"{summary.best_by} {values.max():.4g}" if len(values) else "-"
