"""The report as Markdown, for a pull request or a wiki."""

from collections.abc import Iterator

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.answer import Answer
from paceline.report.questions import answers
from paceline.report.scaling import Comparison
from paceline.report.summary import Summary
from paceline.report.wording import commands_marked
from paceline.units import format_seconds


def render(summary: Summary) -> str:
    found = answers(summary)
    steps = summary.settings.get("steps", 0)
    lines = [
        f"# {summary.run}",
        "",
        f"{summary.settings.get('workload')}, {summary.reason} at step {summary.step:,} of "
        f"{steps:,}, {format_seconds(summary.story.wall_seconds)}",
        "",
        *_verdict(found),
        *_phases(summary),
        *_answers(found),
        *_warnings(summary.warnings),
    ]
    return "\n".join(lines).rstrip() + "\n"


def render_answers(heading: list[str], found: list[Answer]) -> str:
    more = [line for text in heading[1:] for line in (text, "")]
    lines = [f"# {heading[0]}", "", *more, *_verdict(found), *_answers(found)]
    return "\n".join(lines).rstrip() + "\n"


def render_comparison(compared: Comparison) -> str:
    rows = [f"| {' | '.join(row)} |" for row in compared.table]
    rule = "|" + "---|" * len(compared.table[0])
    return "\n".join(
        [
            "# " + " against ".join(compared.runs),
            "",
            *rows[:1],
            rule,
            *rows[1:],
            "",
            *(f"- {text}" for text in compared.sentences),
            "",
        ]
    )


def _verdict(found: list[Answer]) -> Iterator[str]:
    for answer in found:
        if answer.key == "verdict":
            yield f"**{answer.sentence}**"
            yield from (["", f"Remedy: {_code(answer.remedy)}"] if answer.remedy else [])
            yield ""


def _phases(summary: Summary) -> Iterator[str]:
    total = sum(summary.story.phases.values())
    if not total:
        return
    yield from ("| phase | seconds | share | what it is |", "|---|---:|---:|---|")
    for name in PHASES:
        seconds = summary.story.phases.get(name, 0.0)
        if seconds >= 0.0005 * total:
            share = f"{100 * seconds / total:.1f} %"
            yield f"| {name} | {seconds:,.1f} | {share} | {PHASE_MEANING[name]} |"
    yield from (f"| in all | {total:,.1f} | | |", "")


def _answers(found: list[Answer]) -> Iterator[str]:
    shown = [answer for answer in found if answer.key != "verdict"]
    for number, answer in enumerate(shown, start=1):
        yield from (f"## {number}. {answer.question}", "", answer.sentence, "")
        if answer.figures.get("plot"):
            yield from (f"`{answer.figures['plot']}`", "")
        if answer.how:
            yield f"- Measured: {answer.how}"
        if answer.missing:
            yield f"- Missing: {answer.missing}"
        if answer.remedy:
            yield f"- Remedy: {_code(answer.remedy)}"
        yield ""


def _code(remedy: str) -> str:
    """Commands in code quotes, so that they can be copied."""
    return "".join(f"`{t}`" if is_code else t for t, is_code in commands_marked(remedy))


def _warnings(texts: list[str]) -> Iterator[str]:
    if texts:
        yield from ("## Warnings", "", *(f"- {text}" for text in texts))
