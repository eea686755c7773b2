"""The report for a terminal."""

from collections.abc import Iterator
from typing import Any

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.summary import CheckpointCost, Score, StepTimes, Summary
from paceline.schedule import ScheduleSettings, batch_scale, in_words
from paceline.units import count_of, format_bytes, format_count, format_seconds, plural

_MOST_WARNINGS = 5


def render(summary: Summary) -> str:
    sections = [
        _headline(summary),
        _phases(summary),
        _step(summary),
        _scores(summary),
        _checkpoint(summary),
        _rate(summary),
        _data(summary),
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
    yield f"{summary.run}: {settings.get('workload')}, {summary.reason} {where}"
    attempts = summary.story.attempts
    tries = f" in {len(attempts)} attempts" if len(attempts) > 1 else ""
    size = facts.get("world_size")
    world = f" with {count_of(size, 'process')} on {facts.get('device')}" if size else ""
    cpu = f"; {summary.cpu_seconds / 60:.1f} CPU-minutes" if summary.cpu_seconds else ""
    yield f"took {format_seconds(summary.story.wall_seconds)}{tries}{world}{cpu}"
    if "num_parameters" in facts:
        yield (
            f"{format_count(facts['num_parameters'])} parameters, "
            f"{format_bytes(facts['gradient_bytes'])} of gradients per step"
        )


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
    speed = f"{times.units_per_second:,.0f} {plural(unit)}/s over the whole world"
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
    if cost.num_saves or cost.num_failed:
        begin = "checkpoints: " if held is None else "  "
        yield begin + _saves(cost, summary.story.wall_seconds)


def _saves(cost: CheckpointCost, wall_seconds: float) -> str:
    share = f"{100 * cost.stall_seconds / wall_seconds:.2f} %" if wall_seconds else "?"
    failed = f", {cost.num_failed:,} failed" if cost.num_failed else ""
    return (
        f"{count_of(cost.num_saves, 'save')}{failed}: the run stood still for "
        f"{format_seconds(cost.stall_seconds)} ({share}); "
        f"written in the background in {format_seconds(cost.background_seconds)}"
    )


def _rate(summary: Summary) -> Iterator[str]:
    try:
        schedule = ScheduleSettings.model_validate(summary.settings.get("schedule", {}))
    except ValueError:
        return
    scale = batch_scale(schedule, batch) if (batch := _global_batch(summary)) else 1.0
    yield f"learning rate: {in_words(schedule, summary.settings.get('steps', 1), scale)}"


def _global_batch(summary: Summary) -> int | None:
    batch = summary.settings.get("batch") or {}
    world_size = summary.facts.get("world_size") or 0
    return batch.get("global") or (batch.get("per_device") or 0) * world_size or None


def _data(summary: Summary) -> Iterator[str]:
    card = summary.data
    if card is None:
        return
    counts = ", ".join(f"{count:,} {split}" for split, count in card.num_by_split.items())
    kind = " (a stand-in)" if card.is_stand_in else ""
    yield f"data: {card.directory}{kind}: {counts} {card.noun}, {format_bytes(card.total_bytes)}"
    if card.is_other:
        yield "  it has been prepared anew since: the run was trained on something else"


def _machine(summary: Summary) -> Iterator[str]:
    environment = summary.environment
    if not environment:
        return
    libraries = environment.get("libraries", {})
    yield (
        f"machine: {environment.get('host')}, {environment.get('num_cores')} cores, "
        f"{environment.get('device_name')}; torch {libraries.get('torch')}, "
        f"{_threads(environment.get('threads'))} per process"
    )
    settings: dict[str, Any] = environment.get("settings", {})
    if settings:
        yield "  set for the workers: " + " ".join(f"{k}={v}" for k, v in settings.items())


def _threads(number: Any) -> str:
    return count_of(number, "thread") if isinstance(number, int) else "? threads"


def _warnings(summary: Summary) -> Iterator[str]:
    earlier = len(summary.warnings) - _MOST_WARNINGS
    if earlier > 0:
        yield f"{count_of(earlier, 'earlier warning')} in the run's event files, and:"
    for text in summary.warnings[-_MOST_WARNINGS:]:
        yield f"warning: {text}"
