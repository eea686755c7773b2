"""Every reader below this room, and which of them reads a file or a folder."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from paceline.report.foreign import imagenet_example, openseq2seq
from paceline.report.foreign.joining import join_ranks, one_run
from paceline.report.foreign.reading.contract import CERTAIN, TextFormat
from paceline.report.foreign.reading.recognise import find_format, read_lines
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.stores import (
    mlflow,
    notebook,
    tables,
    trackio,
    trainer_state,
    wandb,
    wandb_records,
)
from paceline.report.foreign.text import FORMATS as TRAINERS
from paceline.report.foreign.translation import FORMATS as TRANSLATORS

TEXT_FORMATS = (*TRANSLATORS, *TRAINERS)
Reader = Callable[[Path, Iterator[str]], list[ForeignRun]]
Store = Callable[[Path], list[ForeignRun]]
_FIRST_TOOLS: tuple[tuple[Callable[[str], bool], Reader], ...] = (
    (openseq2seq.is_openseq2seq, openseq2seq.read),
    (imagenet_example.is_imagenet, imagenet_example.read),
)


def reader_of(lines: Callable[[], Iterable[str]]) -> Reader | None:
    """Who printed the lines; of a log in which several tools printed, the surest."""
    found = find_format(lines(), TEXT_FORMATS)
    if found is not None and found[1] >= CERTAIN:
        return partial(_read, found[0])
    for line in lines():
        for is_of_tool, read in _FIRST_TOOLS:
            if is_of_tool(line):
                return read
    return partial(_read, found[0]) if found is not None else None


def _read(kind: TextFormat, path: Path, lines: Iterator[str]) -> list[ForeignRun]:
    by_rank = read_lines(path, lines, kind)
    if len(by_rank) < 2:
        return by_rank[0] if by_rank else []
    return join_ranks([one_run(runs) for runs in by_rank])


def store_of(path: Path) -> Store | None:
    """Of a file that is no printed log."""
    if notebook.is_notebook(path):
        return partial(notebook.read, read_lines=_read_printed)
    if trainer_state.is_state(path):
        return trainer_state.read
    if tables.is_table(path):
        return tables.read
    if path.suffix == ".wandb" and wandb_records.is_run_file(path):
        return wandb.read
    return trackio.read if trackio.is_project(path) else None


def _read_printed(path: Path, lines: list[str]) -> list[ForeignRun]:
    read = reader_of(lambda: lines)
    return read(path, iter(lines)) if read is not None else []


def stores_in(directory: Path) -> list[tuple[Path, Store]]:
    """The first kind of which there is one, so that no run is told twice."""
    finders: tuple[tuple[Callable[[Path], list[Path]], Store], ...] = (
        (trainer_state.find, trainer_state.read),
        (wandb.find, wandb.read),
        (mlflow.find, mlflow.read),
        (tables.find, tables.read),
        (trackio.find, trackio.read),
    )
    for find, read in finders:
        if found := find(directory):
            return [(path, read) for path in found]
    return []
