"""One report in all its forms, whatever it is of: a run, several runs, or another tool's log."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.report import comparison, foreign
from paceline.report.facts.facts import Facts, Options
from paceline.report.own.run import read_run
from paceline.report.render import html, json, markdown, text
from paceline.terminal import printable

Form = Callable[[], str]


@dataclass(frozen=True)
class Report:
    """Each form is made when it is asked for, without control characters from logs and names."""

    text: Form
    html: Form
    markdown: Form
    json: Form
    stem: Path
    """Where files go when the user names none: this path with a suffix."""


def read_facts(path: Path, options: Options | None = None) -> Facts:
    """Of a run directory, or of the log of another tool."""
    if foreign.is_foreign(path):
        return foreign.read_log(path, options or Options())
    return read_run(path, options)


def open_report(paths: list[Path], options: Options) -> Report:
    watched = [path for path in paths if len(paths) > 1 and foreign.is_counters(path)]
    runs = [path for path in paths if path not in watched]
    if watched and len(runs) == 1 and foreign.is_foreign(runs[0]):
        return _report_on(foreign.read_log(runs[0], options, watched))
    if watched:
        raise UserError(
            f"{watched[0]} says how busy a machine was, and it is not clear during which run",
            "give it with one log of another tool, or put it into the folder of its log",
        )
    known = [read_facts(path, options) for path in paths]
    return _report_on(known[0]) if len(paths) == 1 else _compare(known)


def _stem(facts: Facts, name: str) -> Path:
    """In the run; of a log, which is nobody's to write to, here."""
    return facts.run / name if facts.is_own else Path(f"{facts.run.name}.{name}")


def _report_on(facts: Facts) -> Report:
    return Report(
        text=lambda: printable(text.render(facts)),
        html=lambda: printable(html.render(facts)),
        markdown=lambda: printable(markdown.render(facts)),
        json=lambda: printable(json.render(facts)),
        stem=_stem(facts, "report"),
    )


def _compare(known: list[Facts]) -> Report:
    compared = comparison.compare(known)
    return Report(
        text=lambda: printable(text.render_comparison(compared)),
        html=lambda: printable(html.render_comparison(compared)),
        markdown=lambda: printable(markdown.render_comparison(compared)),
        json=lambda: printable(json.render_comparison(compared)),
        stem=_stem(known[-1], "comparison"),
    )
