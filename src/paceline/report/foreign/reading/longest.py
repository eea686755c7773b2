"""Which of very many logs are the longest, without reading them all: by the end of each file.

A report on a directory is about one run. Where the others are only named, their last step is
enough.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from paceline.report.foreign.event_files import Scalar, scalars_of
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import lines_of

_MUCH_BYTES = 50_000_000
_MANY = 20
_MOST_READ = 8
_END_BYTES = 16 << 10
_HEADER = re.compile(rb"(?=[\x01-\xff][\x00-\xff]{2}\x00{5})")
"""Of a record: its length in eight bytes, of which five are zero for all that matter."""
Key = TypeVar("Key")
Reader = Callable[[Path, Iterator[str]], list[ForeignRun]]


def is_much(files: list[Path], num_runs: int) -> bool:
    return num_runs > _MANY and sum(file.stat().st_size for file in files) > _MUCH_BYTES


def longest(steps: Mapping[Key, int | None]) -> set[Key]:
    """Those with the highest last steps, and those whose last step the end does not tell."""
    known = sorted((step for step in steps.values() if step is not None), reverse=True)
    least = known[:_MOST_READ][-1] if known else 0
    picked = [key for key, step in steps.items() if step is not None and step >= least]
    unknown = {key for key, step in steps.items() if step is None}
    return {*picked[:_MOST_READ], *unknown}


def last_step_of_text(path: Path, read: Reader) -> int | None:
    """None where the end of the file tells nothing, e.g. because it is compressed."""
    _, *whole = _end_of(path).decode("utf-8", errors="replace").partition("\n")
    runs = read(path, lines_of(iter(whole)))
    return max((run.step for run in runs), default=None) or None


def last_step_of_events(path: Path) -> int | None:
    """The end is entered where a length has the checksum that follows it."""
    end = _end_of(path)
    for place in _HEADER.finditer(end):
        found = scalars_of(BytesIO(end[place.start() :]))
        steps = [one.step for one in found if isinstance(one, Scalar)]
        if steps:
            return max(steps)
    return None


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _END_BYTES, 0))
        return file.read()
