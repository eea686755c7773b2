"""Finding logs of watching tools in a folder."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from paceline.report.foreign.counters import cloudwatch, nmon, nvidia_smi
from paceline.report.foreign.counters.counters import Counters
from paceline.report.foreign.text_lines import looks_like_text, text_lines

_SUFFIXES = {"", ".csv", ".log", ".txt", ".out", ".nmon", ".gz", ".json"}
_MOST_FILES = 2000
_FIRST_LINES = 12
Read = Callable[[Path], list[Counters]]


def counters_in(directory: Path) -> list[Counters]:
    return [one for path, read in _found(directory) for one in read(path)]


def counters_of(path: Path) -> list[Counters]:
    read = reader_of(path)
    return read(path) if read is not None else []


def reader_of(path: Path) -> Read | None:
    if path.suffix == ".json":
        return cloudwatch.read if cloudwatch.recognises_file(path) else None
    if path.suffix not in _SUFFIXES or not looks_like_text(path):
        return None
    for line in islice(text_lines(path), _FIRST_LINES):
        if nvidia_smi.recognises(line):
            return nvidia_smi.read
        if nmon.recognises(line):
            return nmon.read
    return None


def _found(directory: Path) -> Iterator[tuple[Path, Read]]:
    files = [file for pattern in ("*", "*/*") for file in sorted(directory.glob(pattern))]
    for file in files[:_MOST_FILES]:
        if file.is_file() and file.suffix in _SUFFIXES and (read := reader_of(file)):
            yield file, read
