"""Phases of a process whose threads work side by side; every second still counts once.

A server that updates weights is busy with that, whatever its connections do meanwhile; one that
only sends and receives is in the network; else it is idle.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.record.phases import PhaseClock
from paceline.record.schema import CHECKPOINT, IDLE, NETWORK, OPTIMIZER

_FIRST_COMES = (OPTIMIZER, CHECKPOINT, NETWORK)


class SharedClock(PhaseClock):
    def __init__(self, pauses: dict[str, float]) -> None:
        """`pauses`: seconds by phase, for practice."""
        super().__init__()
        self._pauses = pauses
        self._active = dict.fromkeys(_FIRST_COMES, 0)
        self._open = [IDLE]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._change(name, 1)
        try:
            time.sleep(self._pauses.get(name, 0.0))
            yield
        finally:
            self._change(name, -1)

    def _change(self, name: str, by: int) -> None:
        with self._lock:
            self._book_to_current(time.perf_counter())
            self._active[name] += by
            busy = (phase for phase in _FIRST_COMES if self._active[phase])
            self._open = [next(busy, IDLE)]
