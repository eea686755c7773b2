"""The report for a terminal."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.answer import Answer
from paceline.report.questions import answers
from paceline.report.scaling import Comparison
from paceline.report.summary import Score, StepTimes, Summary
from paceline.units import count_of, format_bytes, format_count, format_seconds, plural

_MOST_WARNINGS = 5
_WIDTH = 98
_INDENT = "    "


def render(summary: Summary) -> str:
    found = answers(summary)
    sections = [
        _headline(summary),
        _phases(summary),
        [*_step(summary), *_verdict(found)],
        _scores(summary),
        answer_lines(found),
        _machine(summary),
        _warnings(summary),
    ]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def first_lines(summary: Summary, count: int) -> str:
    return "\n".join(render(summary).splitlines()[:count])


def render_answers(heading: list[str], found: list[Answer]) -> str:
    """A report that is nothing but answers, of a run of another tool."""
    wrapped = [line for text in heading for line in _wrapped(text, "", "  ")]
    sections = [wrapped, list(_verdict(found)), list(answer_lines(found))]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def render_comparison(compared: Comparison) -> str:
    widths = [max(map(len, column)) for column in zip(*compared.table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in compared.table
    ]
    told = [line for text in compared.sentences for line in _wrapped(text, "- ", "  ")]
    return "\n".join([*lines, "", *told]) + "\n"


def _headline(summary: Summary) -> Iterator[str]:
    settings, facts = summary.settings, summary.facts
    steps = settings.get("steps", 0)
    where = f"at step {summary.step:,} of {steps:,}"
    yield f"{summary.run}: {settings.get('workload')}, {summary.reason} {where}"
    attempts = summary.story.attempts
    tries = f" in {len(attempts)} attempts" if len(attempts) > 1 else ""
    size = facts.get("world_size")
    hosts = f" of {count_of(summary.num_hosts, 'host')}" if summary.num_hosts > 1 else ""
    world = f" with {count_of(size, 'process')} on {facts.get('device')}{hosts}" if size else ""
    about = "about " if summary.times.share_read < 1 else ""
    cpu = f"; {about}{summary.cpu_seconds / 60:.1f} CPU-minutes" if summary.cpu_seconds else ""
    yield f"took {format_seconds(summary.story.wall_seconds)}{tries}{world}{cpu}"
    if "num_parameters" in facts and "gradient_bytes" in facts:
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


def _verdict(found: list[Answer]) -> Iterator[str]:
    for answer in found:
        if answer.key == "verdict":
            yield from _wrapped(f"verdict: {answer.sentence.removeprefix('Verdict: ')}", "", "  ")
            if answer.remedy:
                yield f"  remedy: {answer.remedy}"


def _scores(summary: Summary) -> Iterator[str]:
    by = summary.best_by
    if summary.scores:
        yield f"scores: {_score_line(summary.scores[-1])}"
        best = max(summary.scores, key=lambda score: score.values.get(by, 0.0))
        yield f"  best by {by}: {best.values.get(by, 0.0):.4f} at step {best.step:,}"
    if summary.train_scores:
        yield f"  {_score_line(summary.train_scores[-1])}"
    for score in summary.evaluations:
        yield f"  {_score_line(score)}"


def _score_line(score: Score) -> str:
    values = ", ".join(f"{name} {value:.4f}" for name, value in score.values.items())
    return f"{score.split} {values} at step {score.step:,} [{score.signature}]"


def answer_lines(found: list[Answer]) -> Iterator[str]:
    """Numbered, but for the verdict, which stands above them all."""
    shown = [answer for answer in found if answer.key != "verdict"]
    for number, answer in enumerate(shown, start=1):
        if number > 1:
            yield ""
        yield f"{number:>2}. {answer.question}"
        yield from _wrapped(answer.sentence, _INDENT, _INDENT)
        if answer.figures.get("plot"):
            yield f"{_INDENT}{answer.figures['plot']}"
        if answer.how:
            yield from _wrapped(f"measured: {answer.how}", _INDENT, f"{_INDENT}  ")
        if answer.missing:
            yield from _wrapped(f"missing: {answer.missing}", _INDENT, f"{_INDENT}  ")
        if answer.remedy:
            yield f"{_INDENT}remedy: {answer.remedy}"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
