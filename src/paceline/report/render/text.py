"""The report for a terminal."""

import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.comparison import Comparison
from paceline.report.facts.facts import Facts, Score
from paceline.report.remedies.offer import with_gain
from paceline.report.render.heading import heading
from paceline.report.roles.tables import role_tables
from paceline.report.scaling import scaling_rows
from paceline.task_finder import scales_of
from paceline.units import (
    Scale,
    count_of,
    format_bytes,
    format_count,
    format_score_value,
    format_scores,
    format_seconds,
    plural,
)

_MOST_WARNINGS = 5
_WIDTH = 98
_INDENT = "    "
_NUMBER_AND_UNIT = re.compile(r"(\d) (?=(?:%|s|ms|µs|min|h|d|bytes?|[kMGT]B|[kMG]bit/s)\b|%)")
_STAYS = "\0"
"""A blank at which no line ends; `wrap` takes all blanks of Unicode for ends of words."""


def render(facts: Facts) -> str:
    found = answers(facts)
    sections = _of_run(facts, found) if facts.is_own else _of_log(facts, found)
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _of_run(facts: Facts, found: list[Answer]) -> list[Iterable[str]]:
    return [
        _headline(facts),
        _phases(facts),
        _roles(facts),
        [*_step(facts), *_verdict(found)],
        _findings(facts),
        _scores(facts),
        _answers(found),
        _machine(facts),
        _warnings(facts),
    ]


def _of_log(facts: Facts, found: list[Answer]) -> list[Iterable[str]]:
    """A log knows of no phases, and what it scored stands in the answers."""
    wrapped = [line for text in heading(facts) for line in _wrapped(text, "", "  ")]
    return [wrapped, _verdict(found), _answers(found)]


def render_comparison(compared: Comparison) -> str:
    widths = [max(map(len, column)) for column in zip(*compared.table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in compared.table
    ]
    opening = [line for text in compared.opening for line in _wrapped(text, "", "  ")]
    told = [line for text in compared.sentences for line in _wrapped(text, "- ", "  ")]
    scaling = ["", *_aligned(scaling_rows(compared.scaling))] if compared.scaling else []
    return "\n".join([*opening, "", *lines, *scaling, "", *told]).rstrip() + "\n"


def _aligned(rows: list[list[str]]) -> list[str]:
    """Figures to the right; names and the last column, a bar, to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if 0 < n < len(row) - 1 else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _headline(facts: Facts) -> Iterator[str]:
    settings, world = facts.settings, facts.world
    yield f"{facts.run}: {settings.get('workload')}, {facts.reason} {facts.how_far}"
    attempts = len(facts.attempts)
    tries = f" in {attempts} attempts" if attempts > 1 else ""
    num_hosts = world.num_hosts or 1
    hosts = f" of {count_of(num_hosts, 'host')}" if num_hosts > 1 else ""
    size, device = facts.begin.get("world_size"), facts.begin.get("device")
    used = facts.begin.get("precision")
    place = f"{device}{hosts}{f' in {used}' if used else ''}"
    processes = f" with {count_of(size, 'process')} on {place}" if size else ""
    about = "about " if world.times is not None and world.times.share_read < 1 else ""
    cpu = f"; {about}{world.cpu_seconds / 60:.1f} CPU-minutes" if world.cpu_seconds else ""
    yield f"took {format_seconds(facts.wall_seconds)}{tries}{processes}{cpu}"
    if facts.num_parameters is not None and "gradient_bytes" in facts.begin:
        yield (
            f"{format_count(facts.num_parameters)} parameters, "
            f"{format_bytes(facts.begin['gradient_bytes'])} of gradients per step"
        )


def _phases(facts: Facts) -> Iterator[str]:
    total = sum(facts.phases.values())
    if not total:
        yield "no step was recorded yet"
        return
    yield f"{'phase':<13}{'seconds':>10}{'share':>8}"
    for name in PHASES:
        seconds = facts.phases.get(name, 0.0)
        if seconds >= 0.0005 * total:
            share = 100 * seconds / total
            yield f"{name:<13}{seconds:>10.1f}{share:>6.1f} %  {PHASE_MEANING[name]}"
    yield f"{'in all':<13}{total:>10.1f}{'':>8}  wall time {facts.wall_seconds:.1f} s"


def _roles(facts: Facts) -> Iterator[str]:
    if facts.roles is None:
        return
    tables = role_tables(facts.roles)
    for number, rows in enumerate(tables):
        if number:
            yield ""
        yield from _columns(rows)


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if _is_figure(rows, n) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _is_figure(rows: list[list[str]], column: int) -> bool:
    return all(row[column][:1].isdigit() or row[column] == "-" for row in rows[1:])


def _findings(facts: Facts) -> Iterator[str]:
    if facts.findings:
        yield "findings in the script:"
    for number, one in enumerate(facts.findings, 1):
        where = f" ({one.place})" if one.place else ""
        yield from _wrapped(f"{one.what}{where}: {one.evidence}", f"{number:2d}. ", _INDENT)
        yield from _wrapped(f"change: {with_gain(one)}", _INDENT, _INDENT + "  ")


def _step(facts: Facts) -> Iterator[str]:
    times = facts.step_times
    if times is None or times.low_seconds is None or times.high_seconds is None:
        return
    low, high = format_seconds(times.low_seconds), format_seconds(times.high_seconds)
    spread = f"{format_seconds(times.median_seconds)} (90 % between {low} and {high})"
    rate = times.units_per_second or 0.0
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    yield f"step: median {spread}; {shown} {plural(facts.unit)}/s over the whole world"


def _verdict(found: list[Answer]) -> Iterator[str]:
    for answer in found:
        if answer.key == "verdict":
            yield from _wrapped(f"verdict: {answer.sentence}", "", "  ")
            if answer.remedy:
                yield f"  remedy: {answer.remedy}"


def _scores(facts: Facts) -> Iterator[str]:
    by, learning = facts.learning.best_by, facts.learning
    scales = scales_of(facts.settings.get("workload"))
    if learning.scores:
        yield f"scores: {_score_line(learning.scores[-1], scales)}"
        best = max(learning.scores, key=lambda score: score.values.get(by, 0.0))
        value = format_score_value(best.values.get(by, 0.0), scales.get(by))
        yield f"  best by {by}: {value} at step {best.step:,}"
    if learning.train_scores:
        yield f"  {_score_line(learning.train_scores[-1], scales)}"
    for score in learning.evaluations:
        yield f"  {_score_line(score, scales)}"


def _score_line(score: Score, scales: Mapping[str, Scale]) -> str:
    values = format_scores(score.values, scales)
    return f"{score.split} {values} at step {score.step:,} [{score.signature}]"


def _answers(found: list[Answer]) -> Iterator[str]:
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
    """A number stays on the line of its unit."""
    lines = wrap(
        _NUMBER_AND_UNIT.sub(f"\\1{_STAYS}", text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_STAYS, " ") for line in lines]


def _cores(count: Any) -> str:
    return count_of(count, "core") if isinstance(count, int) else "cores not known"


def _machine(facts: Facts) -> Iterator[str]:
    environment = facts.environment
    if not environment:
        return
    libraries = environment.get("libraries", {})
    yield (
        f"machine: {environment.get('host')}, {_cores(environment.get('num_cores'))}, "
        f"{environment.get('device_name')}; torch {libraries.get('torch')}, "
        f"{_threads(environment.get('threads'))} per process"
    )
    settings: dict[str, Any] = environment.get("settings", {})
    if settings:
        yield "  set for the workers: " + " ".join(f"{k}={v}" for k, v in settings.items())
    kernels: dict[str, str] = environment.get("kernels", {})
    if kernels:
        yield "  kernels: " + ", ".join(f"{name} {way}" for name, way in kernels.items())


def _threads(number: Any) -> str:
    return count_of(number, "thread") if isinstance(number, int) else "? threads"


def _warnings(facts: Facts) -> Iterator[str]:
    earlier = len(facts.warnings) - _MOST_WARNINGS
    if earlier > 0:
        yield f"{count_of(earlier, 'earlier warning')} in the run's event files, and:"
    for text in facts.warnings[-_MOST_WARNINGS:]:
        yield f"warning: {text}"
