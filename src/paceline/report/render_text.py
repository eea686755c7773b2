"""The report for a terminal."""

from collections.abc import Iterator
from typing import Any

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.summary import Score, StepTimes, Summary
from paceline.schedule import ScheduleSettings, in_words
from paceline.units import format_bytes, format_count, format_seconds


def render(summary: Summary) -> str:
    sections = [
        _headline(summary),
        _phases(summary),
        _step(summary),
        _scores(summary),
        _checkpoint(summary),
        _rate(summary),
        _machine(summary),
        _warnings(summary),
    ]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def first_lines(summary: Summary, count: int) -> str:
    return "\n".join(render(summary).splitlines()[:count])


def _headline(summary: Summary) -> Iterator[str]:
    settings, facts = summary.settings, summary.facts
    steps = settings.get("steps", 0)
    where = f"at step {summary.step:,} of {steps:,}"
    yield f"{summary.run}: {settings.get('workload')}, {_ending(summary)} {where}"
    attempts = summary.story.attempts
    tries = f" in {len(attempts)} attempts" if len(attempts) > 1 else ""
    size = facts.get("world_size")
    world = (
        f" with {size} process{'es' if size != 1 else ''} on {facts.get('device')}" if size else ""
    )
    yield f"took {format_seconds(summary.story.wall_seconds)}{tries}{world}"
    if "num_parameters" in facts:
        yield (
            f"{format_count(facts['num_parameters'])} parameters, "
            f"{format_bytes(facts['gradient_bytes'])} of gradients per step"
        )


def _ending(summary: Summary) -> str:
    if summary.reason == "running or killed" and summary.step >= summary.settings.get("steps", 0):
        return "finished"
    return summary.reason


def _phases(summary: Summary) -> Iterator[str]:
    total = sum(summary.story.phases.values())
    if not total:
        yield "no step was recorded yet"
        return
    yield f"{'phase':<13}{'seconds':>10}{'share':>8}"
    for name in PHASES:
        seconds = summary.story.phases.get(name, 0.0)
        if seconds >= 0.0005 * total:
            share = 100 * seconds / total
            yield f"{name:<13}{seconds:>10.1f}{share:>6.1f} %  {PHASE_MEANING[name]}"
    yield f"{'in all':<13}{total:>10.1f}{'':>8}  wall time {summary.story.wall_seconds:.1f} s"


def _step(summary: Summary) -> Iterator[str]:
    times = summary.step_times
    if times is None:
        return
    unit = summary.facts.get("unit", "unit")
    speed = f"{times.units_per_second:,.0f} {unit}s/s over the whole world"
    yield f"step: median {_spread(times)}; {speed}"


def _spread(times: StepTimes) -> str:
    low, high = format_seconds(times.low_seconds), format_seconds(times.high_seconds)
    return f"{format_seconds(times.median_seconds)} (90 % between {low} and {high})"


def _scores(summary: Summary) -> Iterator[str]:
    by = summary.facts.get("best_by", "")
    if summary.scores:
        yield f"scores: {_score_line(summary.scores[-1])}"
        best = max(summary.scores, key=lambda score: score.values.get(by, 0.0))
        yield f"  best by {by}: {best.values.get(by, 0.0):.4f} at step {best.step:,}"
    for score in summary.evaluations:
        yield f"  {_score_line(score)}"


def _score_line(score: Score) -> str:
    values = ", ".join(f"{name} {value:.4f}" for name, value in score.values.items())
    return f"{score.split} {values} at step {score.step:,} [{score.signature}]"


def _checkpoint(summary: Summary) -> Iterator[str]:
    held, cost = summary.checkpoint, summary.checkpoint_cost
    if held is not None:
        parts = ", ".join(
            f"{name} {format_bytes(size)}" for name, size in held.bytes_by_part.items()
        )
        yield f"checkpoint: {format_bytes(held.total_bytes)} ({parts})"
    wall = summary.story.wall_seconds
    share = f"{100 * cost.stall_seconds / wall:.2f} %" if wall else "?"
    failed = f", {cost.num_failed} failed" if cost.num_failed else ""
    yield (
        f"  {cost.num_saves} saves{failed}: the run stood still for "
        f"{format_seconds(cost.stall_seconds)} ({share}); "
        f"written in the background in {format_seconds(cost.background_seconds)}"
    )


def _rate(summary: Summary) -> Iterator[str]:
    try:
        schedule = ScheduleSettings.model_validate(summary.settings.get("schedule", {}))
    except ValueError:
        return
    yield f"learning rate: {in_words(schedule, summary.settings.get('steps', 1))}"


def _machine(summary: Summary) -> Iterator[str]:
    environment = summary.environment
    if not environment:
        return
    libraries = environment.get("libraries", {})
    yield (
        f"machine: {environment.get('host')}, {environment.get('num_cores')} cores, "
        f"{environment.get('device_name')}; torch {libraries.get('torch')}, "
        f"{environment.get('threads')} threads per process"
    )
    settings: dict[str, Any] = environment.get("settings", {})
    if settings:
        yield "  set for the workers: " + " ".join(f"{k}={v}" for k, v in settings.items())


def _warnings(summary: Summary) -> Iterator[str]:
    for text in summary.warnings[-5:]:
        yield f"warning: {text}"
