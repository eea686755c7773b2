"""How far a preparation is: counts what is done; shown on a terminal, said now and then elsewhere.

What is counted (pairs, shards, bytes of a download) is not known here.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from paceline.terminal import REDRAW_SECONDS, StatusLine, can_redraw
from paceline.units import format_bytes, format_seconds

Say = Callable[[str], None]

BYTES: Final = "bytes"
"""The unit whose amounts are shown as MB and GB."""

_SAY_EVERY_SECONDS: Final = 5.0


@dataclass
class Progress:
    """A line that renews itself on a terminal; elsewhere `say` gets a line every few seconds.

    Used with `with`: whatever is shown ends there. Without a total only amount and rate are shown.
    What is done at once is not worth a word.
    """

    what: str
    unit: str
    total: int | None
    say: Say
    done: int = 0
    _skipped: int = 0
    _started_at: float = field(default_factory=time.monotonic)
    _said_at: float = field(default_factory=time.monotonic)
    _is_drawn: bool = field(default_factory=lambda: can_redraw(sys.stderr))
    _line: StatusLine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.close()

    def start_at(self, done: int) -> None:
        """So much is there already, be it more or less than before; speed is taken from here."""
        self.done = self._skipped = done
        self._started_at = time.monotonic()

    def advance(self, count: int, was_there: bool = False) -> None:
        """What was there from before counts as done, but not as speed."""
        self.done += count
        self._skipped += count if was_there else 0
        now = time.monotonic()
        is_over = self.total is not None and self.done >= self.total
        between = REDRAW_SECONDS if self._is_drawn else _SAY_EVERY_SECONDS
        if now - self._said_at >= between and not is_over:
            self._said_at = now
            self._show(self._text((self.done - self._skipped) / max(now - self._started_at, 1e-9)))

    def _show(self, text: str) -> None:
        if not self._is_drawn:
            self.say(text)
            return
        self._line = self._line or StatusLine(sys.stderr)
        self._line.show(text, self.done / self.total if self.total else None)

    def _text(self, rate: float) -> str:
        if self.total is None:
            return f"{self.what}: {self._amount(self.done)}, {self._amount(rate)}/s"
        text = f"{self.what}: {self._of_total(self.total)} ({self.done / self.total:.0%})"
        text += f", {self._amount(rate)}/s"
        if rate > 0:
            text += f", {format_seconds((self.total - self.done) / rate)} left"
        return text

    def _of_total(self, total: int) -> str:
        done = format_bytes(self.done) if self.unit == BYTES else f"{self.done:,}"
        return f"{done} of {self._amount(total)}"

    def _amount(self, count: float) -> str:
        return format_bytes(count) if self.unit == BYTES else f"{count:,.0f} {self.unit}"
