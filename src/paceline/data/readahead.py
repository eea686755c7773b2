"""Reading ahead: threads fill the batches to come while the loop computes.

Threads and not processes, because decoding releases Python's lock (1.92 times the pictures on two
cores) and nothing has to be copied between them: no shared memory (/dev/shm) is needed, and the
only limits are cores and the memory of the batches ahead. What a batch holds depends on its index
alone, so the number of threads changes when it is ready, and nothing else.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


class Filling(Protocol):
    """A batch that takes work to fill, sample by sample, by any thread and in any order."""

    @property
    def num_samples(self) -> int:
        """Places to fill."""

    @property
    def units_per_place(self) -> int:
        """What one place counts for in rates."""

    def fill(self, place: int) -> None:
        """Read and decode one sample into its place."""

    def filled(self) -> Any:
        """The batch, once every place is filled."""


def fill_at_once(batch: Filling) -> Any:
    """Without any thread."""
    for place in range(batch.num_samples):
        batch.fill(place)
    return batch.filled()


def as_it_is(batch: Any) -> Any:
    return batch


@dataclass
class _Entry:
    index: int
    batch: Filling
    num_left: int
    made: Any = None
    is_ready: bool = False
    error: BaseException | None = None


@dataclass
class Busy:
    """What all threads have done so far."""

    num_samples: int = 0
    seconds: float = 0.0

    def since(self, before: "Busy") -> "Busy":
        return Busy(self.num_samples - before.num_samples, self.seconds - before.seconds)


@dataclass
class ReadAhead:
    """Batches by index, in the order of `indices`, which may know of more later on; `num_ahead` are
    in memory at once, or more where these have too few places for all threads."""

    begin: Callable[[int], Filling]
    indices: Iterator[int]
    num_workers: int
    num_ahead: int
    prepare: Callable[[Any], Any] = as_it_is
    """What the thread that fills a batch's last place does with it."""
    most_ahead: int = 0
    """That memory allows; never less than `num_ahead`."""
    _num_places: int = 1
    """Of a batch."""
    _entries: deque[_Entry] = field(default_factory=deque)
    _tasks: deque[tuple[_Entry, int]] = field(default_factory=deque)
    _threads: list[threading.Thread] = field(default_factory=list)
    _busy: Busy = field(default_factory=Busy)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._begin_more()
        self.use_workers(self.num_workers)

    def use_workers(self, num_workers: int) -> None:
        """From now on so many threads work; those above the number wait."""
        with self._changed:
            self.num_workers = num_workers
            self._changed.notify_all()
        for number in range(len(self._threads), num_workers):
            thread = threading.Thread(
                target=self._work, args=(number,), name=f"input-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def take(self) -> tuple[int, Any]:
        """The next batch and its index; waits until it is filled."""
        self._begin_more()  # more may have become known since
        if not self._entries:
            raise IndexError("no batch is left")
        entry = self._entries[0]
        with self._changed:
            while not entry.is_ready and entry.error is None:
                self._changed.wait()
        if entry.error is not None:
            raise entry.error
        self._entries.popleft()
        self._begin_more()
        return entry.index, entry.made

    @property
    def is_next_ready(self) -> bool:
        """Whether `take` would return at once."""
        return bool(self._entries) and self._entries[0].is_ready

    def busy(self) -> Busy:
        with self._changed:
            return Busy(self._busy.num_samples, self._busy.seconds)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._entries.clear()
        self._tasks.clear()

    def _begin_more(self) -> None:
        while len(self._entries) < self._num_wanted():
            index = next(self.indices, None)
            if index is None:
                return
            batch = self.begin(index)
            self._num_places = max(batch.num_samples, 1)
            entry = _Entry(index, batch, batch.num_samples)
            if not batch.num_samples:
                entry.made, entry.is_ready = self.prepare(batch.filled()), True
            with self._changed:
                self._entries.append(entry)
                self._tasks.extend((entry, place) for place in range(batch.num_samples))
                self._changed.notify_all()

    def _num_wanted(self) -> int:
        """So that every thread finds a place to fill while half of the batches wait to be taken."""
        to_fill = -(-self.num_workers // self._num_places)
        return max(self.num_ahead, min(self.num_ahead // 2 + to_fill, self.most_ahead))

    def _work(self, number: int) -> None:
        while (task := self._next_task(number)) is not None:
            entry, place = task
            began = time.perf_counter()
            error: BaseException | None = None
            try:
                entry.batch.fill(place)
                if self._is_last(entry):
                    entry.made = self.prepare(entry.batch.filled())
                    entry.is_ready = True
            except BaseException as problem:
                error = problem
            self._note_done(entry, error, time.perf_counter() - began)

    def _is_last(self, entry: _Entry) -> bool:
        with self._changed:
            entry.num_left -= 1
            return entry.num_left == 0

    def _next_task(self, number: int) -> tuple[_Entry, int] | None:
        with self._changed:
            while not self._is_closed and (number >= self.num_workers or not self._tasks):
                self._changed.wait()
            return None if self._is_closed else self._tasks.popleft()

    def _note_done(self, entry: _Entry, error: BaseException | None, seconds: float) -> None:
        with self._changed:
            self._busy.num_samples += entry.batch.units_per_place
            self._busy.seconds += seconds
            entry.error = entry.error or error
            if entry.is_ready or error is not None:
                self._changed.notify_all()
