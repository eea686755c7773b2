"""A run that is followed: one line that renews itself, in a notebook or on a terminal."""

import html
import math
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from paceline.record.events import Event
from paceline.record.schema import RunDirectory
from paceline.terminal import StatusLine, can_redraw, say_on_stderr
from paceline.units import format_seconds, plural
from paceline.watch.tail import Tail

_LOOK_SECONDS = 0.3
_PLAIN_SECONDS = 10.0
_MOST_SAID = 8
"""Lines with scores that stay in a cell; `Run.curves` has them all."""


class Line(Protocol):
    def show(self, text: str, share: float) -> None:
        """How far the run is, in place of what was shown before."""

    def say(self, text: str) -> None:
        """What stays to be read."""

    def close(self) -> None: ...


class PlainLine:
    """Where nothing can be redrawn: a line now and then."""

    def __init__(self) -> None:
        self._shown_at = -math.inf

    def show(self, text: str, share: float) -> None:
        if share >= 1 or time.monotonic() - self._shown_at > _PLAIN_SECONDS:
            self._shown_at = time.monotonic()
            say_on_stderr(text)

    def say(self, text: str) -> None:
        say_on_stderr(text)

    def close(self) -> None: ...


class NotebookLine:
    """One output of the cell that is replaced; a front end that comes later finds the last one."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._said: list[str] = []
        self._now = ("starting", 0.0)
        self._handle = display({"text/html": self._page()}, raw=True, display_id=True)

    def show(self, text: str, share: float) -> None:
        self._now = (text, share)
        self._handle.update({"text/html": self._page(), "text/plain": text}, raw=True)

    def say(self, text: str) -> None:
        self._said.append(text)
        self.show(*self._now)

    def close(self) -> None: ...

    def _page(self) -> str:
        text, share = self._now
        earlier = [f"({len(self._said) - _MOST_SAID} lines before)"] * (
            len(self._said) > _MOST_SAID
        )
        shown = [*earlier, *self._said[-_MOST_SAID:]]
        said = "".join(f"<div>{html.escape(line)}</div>" for line in shown)
        bar = (
            '<div style="height:4px;background:#8883;margin:4px 0">'
            f'<div style="height:4px;width:{100 * share:.1f}%;background:#2a78d6"></div></div>'
        )
        return f'<div style="font-family:monospace">{said}{bar}<b>{html.escape(text)}</b></div>'


def open_line() -> Line:
    display = _display_of_notebook()
    if display is not None:
        return NotebookLine(display)
    return StatusLine(sys.stderr) if can_redraw(sys.stderr) else PlainLine()


def _display_of_notebook() -> Any:
    """Where this is a Jupyter kernel: what shows something in the cell."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    if kernel is None or not kernel.ZMQInteractiveShell.initialized():
        return None
    return sys.modules["IPython"].display.display


def follow(run: RunDirectory, total_steps: int | None, is_over: Callable[[], bool]) -> None:
    """Show what the first process records until the run is over."""
    line, tail = open_line(), Tail(run.rank_events(0))
    units = [str(event["unit"]) for event in tail.read_new() if "unit" in event]  # history
    unit = plural(units[-1]) if units else "units"
    try:
        over = False
        while not over:
            over = is_over()
            for event in tail.read_new():
                unit = plural(str(event["unit"])) if "unit" in event else unit
                _show_event(line, event, total_steps, unit)
            time.sleep(0.0 if over else _LOOK_SECONDS)
    finally:
        line.close()


def _show_event(line: Line, event: Event, total_steps: int | None, unit: str) -> None:
    kind, step = event["kind"], event.get("step", 0)
    if kind == "steps":
        seconds, num_steps = max(event["seconds"], 1e-9), max(event.get("num_steps", 1), 1)
        total = total_steps or step
        left = (
            f"{format_seconds((total - step) * seconds / num_steps)} left" if step < total else ""
        )
        rate = event.get("num_units", 0) / seconds
        text = f"step {step:,}/{total:,}  loss {event.get('loss', math.nan):.4f}"
        line.show(f"{text}  {rate:,.0f} {unit}/s  {left}".rstrip(), step / max(total, 1))
    elif kind == "score":
        scores = ", ".join(f"{name} {value:.4f}" for name, value in event["scores"].items())
        line.say(f"step {step:,}  {event['split']}: {scores}")
    elif kind == "warning":
        line.say(f"warning: {event.get('text', '')}")
