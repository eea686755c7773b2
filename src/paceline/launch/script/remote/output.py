"""What the processes of a script print, line by line, with the rank of who printed it.

The agent reads every worker's output through a pipe of its own and writes it to the one that it
shares with its supervisor; a progress bar, which writes its line again ten times a second, is
passed on every few seconds only.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator

from paceline.launch.failures import without_rank

_MARK = "\x01"
_BAR_SECONDS = 5.0
_LAST_LINES = 200
_SHOWN_LINES = 60
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 20
_TRACEBACK = "Traceback (most recent call last)"


def with_rank(rank: int, line: bytes) -> bytes:
    return f"{_MARK}{rank}{_MARK}".encode() + line


def split_rank(line: str) -> tuple[int | None, str]:
    """The rank whose line it is, None if it is the agent's own; and the line as it was printed."""
    if not line.startswith(_MARK):
        return None, line
    rank, _, text = line[1:].partition(_MARK)
    return (int(rank), text) if rank.isdecimal() else (None, line)


class OutputReader:
    """Passes on one worker's output until all who could write to it are gone."""

    _writing = threading.Lock()

    def __init__(self, reading: int, rank: int, target: int = 1) -> None:
        self._reading, self._rank, self._target = reading, rank, target
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._bar_shown = 0.0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    @property
    def last_words(self) -> str:
        """From the last traceback on, or the last lines if there is none."""
        lines = list(self._last)
        begins = [n for n, line in enumerate(lines) if _TRACEBACK in line]
        chosen = lines[begins[-1] :] if begins else lines[-_SHOWN_LINES // 4 :]
        return "\n".join(chosen[-_SHOWN_LINES:])

    def _work(self) -> None:
        with os.fdopen(self._reading, "rb", buffering=0) as stream:
            for line, is_bar in split_lines(iter(lambda: stream.read(_CHUNK_BYTES), b"")):
                self._pass_on(line, is_bar)

    def _pass_on(self, line: bytes, is_bar: bool) -> None:
        if is_bar:
            if time.monotonic() - self._bar_shown < _BAR_SECONDS:
                return
            self._bar_shown = time.monotonic()
        else:
            self._last.append(without_rank(line.decode(errors="replace")))
        text = with_rank(self._rank, line) + b"\n"
        with self._writing:
            while text:
                try:
                    text = text[os.write(self._target, text) :]
                except OSError:  # nobody reads any more; the worker must not be held up by that
                    return


def split_lines(chunks: Iterator[bytes | None]) -> Iterator[tuple[bytes, bool]]:
    """Lines without their ends, and whether a line is only about to be written over (a bar)."""
    rest = b""
    for chunk in chunks:
        rest += chunk or b""
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r").rpartition(b"\r")[2], False
        bar, returned, tail = rest.rpartition(b"\r")
        if returned and bar:
            yield bar.rpartition(b"\r")[2], True
            rest = tail
        if len(rest) > _LONGEST_LINE_BYTES:
            yield rest, False
            rest = b""
    if rest:
        yield rest, False
