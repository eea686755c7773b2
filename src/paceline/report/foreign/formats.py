"""Every reader below this room, and which of them reads a file."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from paceline.report.foreign.joining import join_ranks, one_run
from paceline.report.foreign.reading.contract import TextFormat
from paceline.report.foreign.reading.recognise import find_format, read_lines
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text import FORMATS as TRAINERS
from paceline.report.foreign.translation import FORMATS as TRANSLATORS

TEXT_FORMATS = (*TRANSLATORS, *TRAINERS)
Reader = Callable[[Path, Iterator[str]], list[ForeignRun]]


def reader_of(lines: Iterator[str]) -> Reader | None:
    found = find_format(lines, TEXT_FORMATS)
    return partial(_read, found) if found is not None else None


def _read(kind: TextFormat, path: Path, lines: Iterator[str]) -> list[ForeignRun]:
    by_rank = read_lines(path, lines, kind)
    if len(by_rank) == 1:
        return by_rank[0]
    return join_ranks([one_run(runs) for runs in by_rank])
