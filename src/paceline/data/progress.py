"""How far a preparation is: counts what is done and says it now and then.

What is counted (pairs, shards, bytes of a download) is not known here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from paceline.units import format_bytes, format_seconds

Say = Callable[[str], None]

BYTES: Final = "bytes"
"""The unit whose amounts are shown as MB and GB."""

_SAY_EVERY_SECONDS: Final = 5.0


@dataclass
class Progress:
    """Says every few seconds how much is done; what is done at once is not worth a word.

    Used with `with`: whatever is shown ends there. Without a total only amount and rate are shown.
    """

    what: str
    unit: str
    total: int | None
    say: Say
    done: int = 0
    _skipped: int = 0
    _started_at: float = field(default_factory=time.monotonic)
    _said_at: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

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
        if now - self._said_at >= _SAY_EVERY_SECONDS and not is_over:
            self._said_at = now
            self.say(self._text((self.done - self._skipped) / max(now - self._started_at, 1e-9)))

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
