"""What is printed where somebody may look on: safe text, small drawings, a line of progress.

`rich` draws on terminals. It is imported only when there is one to draw on, so that workers,
pipes and `--help` do not pay for it. A file, a pipe and TERM=dumb get plain lines.
"""

import codecs
import io
import math
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console
    from rich.live import Live

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline: ESC drives terminals
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what reorders a line or looks like its end
    "\ud800-\udfff]"  # half characters, from file names that are not UTF-8: print() fails
)
_COLOURING = re.compile(r"\x1b\[[0-9;:]*m")
REDRAW_SECONDS = 0.5
"""Between two states of a line: each takes 0.2 ms, so the work waits for 0.04 % of its time."""
_PLAIN_WIDTH = 100


def printable(text: str) -> str:
    """The text with control characters spelled out: ESC becomes the six characters \\u001b.

    Newlines and tabs stay; collapse white space first where one line is wanted. The spelling is
    JSON's, so text that is JSON stays JSON with the same content.
    """
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_INSTEAD = str.maketrans(
    "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588\u00b5\u2026", ".:-=+*##u."
)
"""The bars of small curves, from low to high, and what units need."""


def print_what_cannot_be_as_another() -> None:
    """On a terminal or a pipe that knows few characters, others stand in for the rest."""
    codecs.register_error("paceline", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="paceline")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    other = error.object[error.start : error.end].translate(_INSTEAD)
    return other.encode("ascii", "replace").decode("ascii"), error.end


def printable_line(text: str) -> str:
    """On one line."""
    return printable(" ".join(text.split()))


def printable_output(line: str) -> str:
    """A line that another program wrote for a terminal: without its colours, and where a progress
    bar has renewed the line, as it was left."""
    return printable(_COLOURING.sub("", line).rstrip("\r\n").rpartition("\r")[2])


def can_redraw(stream: TextIO) -> bool:
    """Whether it is a terminal that knows colours and can move the cursor."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def console_of(stream: TextIO) -> "Console":
    """For text that is not to be interpreted; without any escape codes unless `can_redraw`."""
    from rich.console import Console  # noqa: PLC0415

    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")  # a path in letters that it does not know
    draws = can_redraw(stream)
    width = None if draws else _width_of(stream)
    return Console(
        file=stream,
        force_terminal=draws,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _width_of(stream: TextIO) -> int:
    """A dumb terminal has a width as well."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _PLAIN_WIDTH
    except (OSError, ValueError):
        return _PLAIN_WIDTH


def sparkline(
    values: Sequence[float], width: int = 60, low: float | None = None, ascii_only: bool = False
) -> str:
    """A curve in one line, from the lowest value (or `low`, if that is lower) to the highest.

    Of more values than `width` it shows some, evenly spaced. What is not finite is left out.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known or width < 1:
        return ""
    count = min(width, len(known))
    picked = [known[(2 * n + 1) * len(known) // (2 * count)] for n in range(count)]
    lowest, highest = min(known if low is None else [low, *known]), max(known)
    marks = "_.-=^" if ascii_only else "▁▂▃▄▅▆▇█"
    span = highest - lowest
    if span <= 1e-6 * max(abs(highest), abs(lowest)) or not math.isfinite(span):
        return marks[0] * count
    return "".join(marks[round((value - lowest) / span * (len(marks) - 1))] for value in picked)


def averaged(values: Sequence[float], count: int) -> list[float]:
    """Means of `count` stretches: a noisy curve that is to fit into so many marks."""
    count = min(count, len(values))
    cuts = [number * len(values) // count for number in range(count + 1)] if count > 0 else []
    return [sum(values[first:last]) / (last - first) for first, last in pairwise(cuts)]


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    num_full = round(min(max(share, 0.0), 1.0) * width)
    return full * num_full + empty * (width - num_full)


class _UnfailingOutput(io.BufferedIOBase):
    """A file descriptor that takes everything: what cannot be written is dropped.

    Without a buffer of Python's, which refuses to be written by a signal handler while it is being
    written ("reentrant call"): a launcher that was just printing would end at a closed terminal.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @property
    def name(self) -> int:
        return self._handle

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)

    def writable(self) -> bool:
        return True

    def write(self, content: "ReadableBuffer") -> int:
        rest = memoryview(content).cast("B")
        num_bytes = rest.nbytes
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError:  # EIO: the terminal was closed; EPIPE: so was `tee`; ENOSPC: a full log
            pass
        return num_bytes


def outlive_terminal() -> None:
    """From now on no write to stdout or stderr fails in this process, whatever becomes of them.

    For processes that train: an error from a closed terminal would end them before they save.
    Readers keep the error, because `paceline log RUN | head` should end with `head`.
    """
    sys.stdout, sys.stderr = _unfailing(sys.stdout, 1), _unfailing(sys.stderr, 2)


def _unfailing(stream: TextIO | None, handle: int) -> TextIO:
    if stream is None:  # closed before the start (`2>&-`): the number may be another file's now
        return Path(os.devnull).open("w", encoding="utf-8")
    return io.TextIOWrapper(
        _UnfailingOutput(handle),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,  # processes that train end without the interpreter's last flush
    )


def say_on_stderr(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


class StatusLine:
    """The last line of a terminal, which renews itself; what is said meanwhile goes above it.

    Nothing is drawn between two calls: no thread competes with the work.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = console_of(stream)
        self._live: Live | None = None

    def show(self, text: str, share: float | None = None) -> None:
        """`share` of the whole, if known, is drawn as a bar where there is room for one."""
        from rich.text import Text  # noqa: PLC0415

        line = Text(printable_line(text), no_wrap=True, overflow="crop")
        room = self._console.width - line.cell_len - 2
        if share is not None and room >= 10:
            drawn = bar(share, min(room, 30), self._console.options.ascii_only)
            line = Text.assemble((drawn, "cyan"), " ", line, no_wrap=True, overflow="crop")
        self._started().update(line, refresh=True)

    def _started(self) -> "Live":
        from rich.live import Live  # noqa: PLC0415

        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
            self._console.show_cursor(True)  # a worker that is killed cannot give it back
        return self._live

    def say(self, text: str) -> None:
        self._console.print(printable(text), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
