"""Every reader below this room, and which of them reads a file or a folder."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from paceline.report.foreign import imagenet_example, openseq2seq
from paceline.report.foreign.joining import one_run
from paceline.report.foreign.reading.contract import CERTAIN, TextFormat
from paceline.report.foreign.reading.recognise import find_format, read_lines
from paceline.report.foreign.run import ForeignRun, RankTimes
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
_LINES_AT_BEGIN = (100, 20_000)
"""Few first: there may be a thousand logs."""
_FIRST_TOOLS: tuple[tuple[Callable[[str], bool], Reader], ...] = (
    (openseq2seq.is_openseq2seq, openseq2seq.read),
    (imagenet_example.is_imagenet, imagenet_example.read),
)


def reader_of(lines: Callable[[], Iterable[str]]) -> Reader | None:
    """Who printed the lines; of a log in which several tools printed, the surest."""
    for count in _LINES_AT_BEGIN:
        begin = find_format(islice(lines(), count), TEXT_FORMATS)
        is_known = begin is not None and begin[1] >= CERTAIN
        # Looking at all lines for all other tools would take longer than reading them.
        if not is_known and (read := _first_tool(islice(lines(), count))):
            return read
    found = find_format(lines(), TEXT_FORMATS)
    if found is not None and found[1] >= CERTAIN:
        return partial(_read, found[0])
    if read := _first_tool(lines()):
        return read
    return partial(_read, found[0]) if found is not None else None


def _first_tool(lines: Iterable[str]) -> Reader | None:
    for line in lines:
        for is_of_tool, read in _FIRST_TOOLS:
            if is_of_tool(line):
                return read
    return None


def _read(kind: TextFormat, path: Path, lines: Iterable[str]) -> list[ForeignRun]:
    """Processes that printed the same steps into one file are one run."""
    by_process = read_lines(path, lines, kind)
    if len(by_process) < 2:
        return next(iter(by_process.values()), [])
    found = {who: run for who, runs in by_process.items() if (run := one_run(runs)) is not None}
    main = max(found.values(), key=lambda run: (run.step, run.step_times.num_steps))
    together = {who: run for who, run in found.items() if run.step == main.step}
    if len(together) > 1:
        _tell_ranks(main, together)
    return [main]


def _tell_ranks(run: ForeignRun, ranks: dict[str, ForeignRun]) -> None:
    """The process that waits longest for its input sets the pace."""
    for who, rank in sorted(ranks.items(), key=lambda item: (len(item[0]), item[0])):
        times = rank.step_times
        name = f"rank {who}" if who.isdecimal() else who
        told = RankTimes(name, times.num_steps, times.total_seconds, times.input_seconds)
        run.ranks.append(told)
    shares = [rank.input_share for rank in run.ranks if rank.input_share is not None]
    if shares:
        run.step_times.input_seconds = max(shares) * run.step_times.total_seconds
    if len(ranks) > (run.world or 0):
        run.world, run.world_how = len(ranks), "the processes that printed into the log"


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
