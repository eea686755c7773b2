"""What a report answers about a log of another tool, for tests of the readers of such logs."""

from pathlib import Path

from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.facts.facts import Options
from paceline.report.foreign import ForeignRun, read_log
from paceline.report.foreign.as_facts import as_facts
from paceline.report.render.heading import heading


def answers_of_log(
    path: Path, link: float | None = None, price: float | None = None
) -> list[Answer]:
    return answers(read_log(path, Options(link, price)))


def answers_of(run: ForeignRun, link: float | None = None) -> list[Answer]:
    return answers(as_facts(run, Options(link)))


def heading_of(run: ForeignRun) -> list[str]:
    return heading(as_facts(run, Options()))
