"""Finding out which tool wrote a log, and reading it."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from paceline.errors import UserError
from paceline.record.schema import RunDirectory
from paceline.report.facts.facts import Facts, Options
from paceline.report.foreign import formats, tensorboard
from paceline.report.foreign.as_facts import as_facts
from paceline.report.foreign.counters.beside import counters_in
from paceline.report.foreign.event_files import is_event_file
from paceline.report.foreign.joining import join_ranks, one_run
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import looks_like_text, text_lines

_READABLE = (
    "give a run directory of `paceline train`, TensorBoard event files (a file or a directory), "
    "the output of OpenSeq2Seq, or the progress of the PyTorch ImageNet example "
    "('Epoch: [0][50/1252]  Time ...'), each as plain text or compressed"
)
_LOG_SUFFIXES = {"", ".log", ".out", ".err", ".txt", ".gz", ".bz2", ".xz"}
_MOST_FILES = 2000
_LINES_AT_BEGIN = 20_000


def is_foreign(path: Path) -> bool:
    """Whether this is for `read_foreign`: any file, and a directory of logs that is no run."""
    if path.is_dir():
        return not RunDirectory(path).exists() and (
            bool(tensorboard.event_files(path))
            or bool(formats.stores_in(path))
            or next(_known_logs(path), None) is not None
        )
    return path.is_file()


def read_log(path: Path, options: Options | None = None) -> Facts:
    return as_facts(read_foreign(path), options or Options())


def read_foreign(path: Path) -> ForeignRun:
    """What the log says, as plain data. A log of no known tool is a mistake of the user's."""
    if not path.exists():
        raise UserError(f"{path} does not exist", _READABLE)
    runs = _read_directory(path) if path.is_dir() else _read_file(path)
    if not runs:
        raise UserError(f"{path} holds nothing that can be reported", _READABLE)
    run = one_run(runs)
    if path.is_dir():
        run.counters += counters_in(path)
    if run.path != path and path.is_dir():
        run.notes.append(f"read from {run.path}")
    return run


def _read_directory(path: Path) -> list[ForeignRun]:
    if tensorboard.event_files(path):
        return tensorboard.read(path)
    if stores := formats.stores_in(path):
        return [run for place, read_store in stores for run in read_store(place)]
    runs = [one_run(found) for file, read in _known_logs(path) if (found := _read_with(file, read))]
    return join_ranks(runs)


def _read_file(path: Path) -> list[ForeignRun]:
    if is_event_file(path):
        return tensorboard.read(path)
    if store := formats.store_of(path):
        return store(path)
    if not looks_like_text(path):
        raise UserError(f"{path} is not a log that Paceline knows: it is not text", _READABLE)
    read = formats.reader_of(lambda: text_lines(path))
    if read is None:
        raise UserError(f"{path} is not a log that Paceline knows", _READABLE)
    return _read_with(path, read)


def _read_with(path: Path, read: formats.Reader) -> list[ForeignRun]:
    return read(path, text_lines(path))


def _known_logs(directory: Path) -> Iterator[tuple[Path, formats.Reader]]:
    """Text logs below a directory, one per process perhaps; only their begin is looked at."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    for file in files[:_MOST_FILES]:
        if file.suffix in _LOG_SUFFIXES and looks_like_text(file):
            begin = list(islice(text_lines(file), _LINES_AT_BEGIN))
            read = formats.reader_of(partial(iter, begin))
            if read is not None:
                yield file, read
