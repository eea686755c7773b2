"""A clock that books every second of a process to exactly one phase."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from paceline.record.schema import UNEXPLAINED


class PhaseClock:
    """Phases are exclusive: entering one inside another pauses the outer one. They are those of one
    thread; others may ask how long they took."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seconds: dict[str, float] = {}
        self._taken: dict[str, float] = {}
        self._open = [UNEXPLAINED]
        self._since = time.perf_counter()
        self.failed_in: str | None = None
        """The innermost phase that an error has left."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._enter(name)
        try:
            yield
        except BaseException:
            self.failed_in = self.failed_in or name
            raise
        finally:
            with self._lock:
                self._book_to_current(time.perf_counter())
                self._open.pop()

    def _enter(self, name: str) -> None:
        with self._lock:
            self._book_to_current(time.perf_counter())
            self._open.append(name)

    def more_of(self, name: str) -> AbstractContextManager[None]:
        """A phase that this step has been in already and that practice does not slow down again."""
        return PhaseClock.phase(self, name)

    @property
    def now(self) -> tuple[str, float]:
        """The current phase, and when (by `perf_counter`) something was last booked."""
        return self._open[-1], self._since

    def move(self, seconds: float, source: str, target: str) -> None:
        """Book part of one phase to another, for what is only known afterwards."""
        with self._lock:
            self._seconds[source] = self._seconds.get(source, 0.0) - seconds
            self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """The seconds per phase since the last `take`; they add up to the time that passed."""
        with self._lock:
            self._book_to_current(time.perf_counter())
            taken, self._seconds = self._seconds, {}
            self._taken = _sum_of(self._taken, taken)
            return taken

    def totals(self) -> dict[str, float]:
        """The seconds per phase since the clock was made; their differences tell of a step."""
        with self._lock:
            self._book_to_current(time.perf_counter())
            return _sum_of(self._taken, self._seconds)

    def _book_to_current(self, now: float) -> None:
        current = self._open[-1]
        self._seconds[current] = self._seconds.get(current, 0.0) + now - self._since
        self._since = now


def _sum_of(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
