"""One report in all its forms, whatever it is of: a run, several runs, or another tool's log."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.report import (
    foreign,
    render_html,
    render_json,
    render_markdown,
    render_text,
    scaling,
)
from paceline.report.summary import Options, Summary, summarise


@dataclass(frozen=True)
class Forms:
    """Each form is made when it is asked for."""

    text: Callable[[], str]
    html: Callable[[], str]
    markdown: Callable[[], str]
    json: Callable[[], str]
    stem: Path
    """Where files go when the user names none: this path with a suffix."""


def open_report(paths: list[Path], options: Options) -> Forms:
    if len(paths) == 1 and foreign.is_foreign(paths[0]):
        return _of_foreign(paths[0], options)
    strange = [path for path in paths if foreign.is_foreign(path)]
    if strange:
        raise UserError(
            f"{strange[0]} is a log of another tool, which cannot be compared with other runs",
            "report on it alone",
        )
    summaries = [summarise(path, options) for path in paths]
    return _of_run(summaries[0]) if len(paths) == 1 else _of_runs(summaries)


def _of_run(summary: Summary) -> Forms:
    return Forms(
        text=lambda: render_text.render(summary),
        html=lambda: render_html.render(summary),
        markdown=lambda: render_markdown.render(summary),
        json=lambda: render_json.render(summary),
        stem=summary.run / "report",
    )


def _of_runs(summaries: list[Summary]) -> Forms:
    compared = scaling.compare(summaries)
    return Forms(
        text=lambda: render_text.render_comparison(compared),
        html=lambda: render_html.render_comparison(compared),
        markdown=lambda: render_markdown.render_comparison(compared),
        json=lambda: render_json.render_comparison(compared),
        stem=summaries[-1].run / "comparison",
    )


def _of_foreign(path: Path, options: Options) -> Forms:
    run = foreign.read_foreign(path, options.link_bits_per_second, options.price_per_hour)
    heading, found = foreign.headline(run), foreign.answers(run)
    return Forms(
        text=lambda: render_text.render_answers(heading, found),
        html=lambda: render_html.render_answers(heading, found, foreign.plots_of(run)),
        markdown=lambda: render_markdown.render_answers(heading, found),
        json=lambda: render_json.render_answers(heading, found),
        stem=Path(f"{path.name}.report"),
    )
