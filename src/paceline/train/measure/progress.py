"""How far training is, on stderr: a line that renews itself on a terminal, elsewhere plain lines.

`rich` is imported only on a terminal: it takes a tenth of a second, which workers do not have.
"""

import sys
import time
from typing import Any

from paceline.terminal import REDRAW_SECONDS, StatusLine, can_redraw, say_on_stderr
from paceline.units import format_seconds, plural


class ProgressLine:
    """Shown by the first process. `show_seconds` lie between two lines that are not redrawn."""

    def __init__(self, show_seconds: float, unit: str) -> None:
        self._unit = plural(unit)
        self._line = StatusLine(sys.stderr) if can_redraw(sys.stderr) else None
        self._interval = show_seconds if self._line is None else REDRAW_SECONDS
        self._last_shown = 0.0
        self._recent: list[tuple[float, int]] = []

    def show(self, fields: dict[str, Any], units_per_second: float, total_steps: int) -> None:
        """The fields are those of a `steps` event."""
        now = time.monotonic()
        self._recent = [*self._recent[-20:], (fields["seconds"], fields["num_steps"])]
        if now - self._last_shown < self._interval and fields["step"] < total_steps:
            return
        self._last_shown = now
        per_step = sum(s for s, _ in self._recent) / sum(n for _, n in self._recent)
        num_left = total_steps - fields["step"]
        left = f"{format_seconds(num_left * per_step)} left" if num_left else "done"
        text = (
            f"step {fields['step']:,}/{total_steps:,}  loss {fields['loss']:.4f}  "
            f"rate {fields['rate']:.3g}  {units_per_second:,.0f} {self._unit}/s  {left}"
        )
        if self._line is None:
            say_on_stderr(text)
        else:
            self._line.show(text, fields["step"] / total_steps)

    def say(self, text: str) -> None:
        """What stays to be read, such as scores; it may hold text from data and libraries."""
        if self._line is None:
            say_on_stderr(text)
        else:
            self._line.say(text)

    def finish(self) -> None:
        if self._line is not None:
            self._line.close()
