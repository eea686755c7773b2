"""The report as Markdown, for a pull request or a wiki."""

from collections.abc import Iterator

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.answers.words import commands_marked
from paceline.report.comparison import Comparison
from paceline.report.facts.facts import Facts
from paceline.report.remedies.offer import with_gain
from paceline.report.render.heading import heading
from paceline.report.roles.tables import role_tables
from paceline.report.scaling import scaling_rows


def render(facts: Facts) -> str:
    found = answers(facts)
    first, *more = heading(facts)
    lines = [
        f"# {first}",
        "",
        *(line for text in more for line in (text, "")),
        *_verdict(found),
        *_findings(facts),
        *_phases(facts),
        *_roles(facts),
        *_answers(found),
        *_warnings(facts),
    ]
    return "\n".join(lines).rstrip() + "\n"


def render_comparison(compared: Comparison) -> str:
    rows = [f"| {' | '.join(row)} |" for row in compared.table]
    rule = "|" + "---|" * len(compared.table[0])
    return "\n".join(
        [
            "# " + " against ".join(compared.runs),
            "",
            *(line for text in compared.opening for line in (f"**{text}**", "")),
            *rows[:1],
            rule,
            *rows[1:],
            "",
            *_scaling(compared),
            *(f"- {text}" for text in compared.sentences),
            "",
        ]
    )


def _scaling(compared: Comparison) -> list[str]:
    if not compared.scaling:
        return []
    head, *rows = [row[:-1] for row in scaling_rows(compared.scaling)]
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*table, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _findings(facts: Facts) -> Iterator[str]:
    if facts.findings:
        yield "## Findings in the script\n"
    for one in facts.findings:
        where = f" (`{one.place}`)" if one.place else ""
        yield f"- **{one.what}**{where}: {one.evidence}. Change: {with_gain(one)}"
    if facts.findings:
        yield ""


def _verdict(found: list[Answer]) -> Iterator[str]:
    for answer in found:
        if answer.key == "verdict":
            yield f"**{answer.sentence}**"
            yield from (["", f"Remedy: {_code(answer.remedy)}"] if answer.remedy else [])
            yield ""


def _phases(facts: Facts) -> Iterator[str]:
    total = sum(facts.phases.values())
    if not total:
        return
    yield from ("| phase | seconds | share | what it is |", "|---|---:|---:|---|")
    for name in PHASES:
        seconds = facts.phases.get(name, 0.0)
        if seconds >= 0.0005 * total:
            share = f"{100 * seconds / total:.1f} %"
            yield f"| {name} | {seconds:,.1f} | {share} | {PHASE_MEANING[name]} |"
    yield from (f"| in all | {total:,.1f} | | |", "")


def _roles(facts: Facts) -> Iterator[str]:
    for head, *rows in role_tables(facts.roles) if facts.roles is not None else []:
        yield f"| {' | '.join(head)} |"
        yield "|" + "---|" * len(head)
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


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


def _warnings(facts: Facts) -> Iterator[str]:
    """Of a run; those of a log stand in its heading."""
    if facts.is_own and facts.warnings:
        yield from ("## Warnings", "", *(f"- {text}" for text in facts.warnings))
