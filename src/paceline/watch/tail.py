"""Reading event files as they grow: each call gives the whole lines that are new.

A torn line is left until it is whole. A file that is long already is not read in full: windows
spread evenly over it draw the same curve.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from paceline.record.events import Event, parse_events

_MOST_BYTES = 24 << 20
_WINDOW_BYTES = 1 << 16
_NUM_WINDOWS = 256


class Tail:
    """One file."""

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self._from_end = from_end

    def read_new(self) -> list[Event]:
        try:
            with self.path.open("rb") as file:
                return list(parse_events(self._lines(file)))
        except OSError:
            return []  # not there yet, or just moved away

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        size = file.seek(0, 2)
        if size < self._offset:  # another file of this name
            self._offset, self._rest = 0, b""
        if self._offset == 0:
            yield from self._skip_ahead(file, size)
        file.seek(self._offset)
        content = self._rest + file.read(max(size - self._offset, 0))
        self._offset = max(size, self._offset)
        whole, newline, self._rest = content.rpartition(b"\n")
        if newline:
            yield from whole.split(b"\n")

    def _skip_ahead(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """Leave the offset near the end of a long file, having shown what lies before it."""
        most = _WINDOW_BYTES if self._from_end else _MOST_BYTES
        if size <= most:
            return
        file.seek(0)
        yield file.readline()  # `begin`, which names host and world
        last = size - _WINDOW_BYTES
        if not self._from_end:
            for number in range(_NUM_WINDOWS):
                file.seek(number * last // _NUM_WINDOWS)
                yield from file.read(_WINDOW_BYTES).split(b"\n")[1:-1]
        file.seek(last)
        file.readline()
        self._offset = file.tell()


class RunTail:
    """All event files of a run, also those that appear later."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._tails: dict[str, Tail] = {}

    def read_new(self) -> list[tuple[str, Event]]:
        """(name of the file without its ending, event), files in order of name."""
        for path in sorted(self._events.glob("*.jsonl")):
            if path.stem not in self._tails:
                is_other_rank = path.stem.startswith("rank-") and path.stem != "rank-00000"
                self._tails[path.stem] = Tail(path, from_end=is_other_rank)
        return [
            (name, event) for name, tail in sorted(self._tails.items()) for event in tail.read_new()
        ]
