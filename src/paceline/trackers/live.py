"""Scalars of a run that is being trained, sent by a thread that training never waits for.

A tracker may be slow, away or broken. Then points are dropped, it is said once, and training goes
on: the same points are in the run's own events.
"""

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from paceline.trackers.tracker import Tracker, open_tracker

_MOST_WAITING = 10_000
_END_SECONDS = 20.0

Point = tuple[str, float, int]


class LiveTracker:
    """Has the same methods as the writer for TensorBoard, and is used beside it."""

    def __init__(self, name: str, directory: Path, warn: Callable[[str], None]) -> None:
        self._name, self._directory, self._warn = name, directory, warn
        self._points: queue.Queue[Point | None] = queue.Queue(_MOST_WAITING)
        self._is_broken = False
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if self._is_broken:
            return
        try:
            self._points.put_nowait((name, float(value), step))
        except queue.Full:
            self._fail(f"it does not keep up; {_MOST_WAITING:,} points wait for it")

    def add_text(self, name: str, text: str, step: int) -> None:
        """Samples of text stay in the events and in TensorBoard."""

    def close(self) -> None:
        if not self._is_broken:
            self._points.put(None)
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                self._fail(f"it did not take the last points within {_END_SECONDS:.0f} s")

    def _work(self) -> None:
        try:
            tracker = open_tracker(self._name, self._directory, going_on=True)
            self._send(tracker)
            tracker.close()
        except BaseException as error:  # whatever it is, training is not to end by it
            self._fail(f"{type(error).__name__}: {error}")

    def _send(self, tracker: Tracker) -> None:
        """All scalars of a step in one message."""
        waiting: dict[str, float] = {}
        at_step = 0
        while (point := self._points.get()) is not None:
            name, value, step = point
            if waiting and step != at_step:
                tracker.add_scalars(waiting, at_step)
                waiting = {}
            waiting[name], at_step = value, step
        if waiting:
            tracker.add_scalars(waiting, at_step)

    def _fail(self, why: str) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._warn(f"{self._name} gets no more scalars of this run: {why}")
