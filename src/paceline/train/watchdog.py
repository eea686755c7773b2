"""A process that tells where it is, so that one that hangs can be named and ended.

A thread writes a small file every half second: step, phase, the collective the main thread waits
in, and for how long it has not moved. Who hangs is judged elsewhere, by someone who sees all
processes; a process that is stopped, or whose interpreter is stuck, is told by its silence.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.files import write_whole
from paceline.machine.interfaces import bytes_on_links
from paceline.record.phases import PhaseClock
from paceline.record.schema import START_UP
from paceline.train.measure.collectives import pending_collective
from paceline.train.measure.device_clock import wait_for_device
from paceline.world import wait_for_others

_EVERY_SECONDS = 0.5
_COLLECTIVES = "distributed_c10d.py"
_ROLES = os.path.join("paceline", "strategies")  # noqa: PTH118  (a part of a name, not a path)
_WAITS_OF_ROLES = {
    "_await_weights": "weights from the servers",
    "_send": "the servers to take its gradient",
    "begin": "older gradients",
    "deliver": "the update",
    "next": "samples to compute",
    "receive_copy": "a copy of all shards",
    "take_chore": "the workers",
    "serve": "requests",
    "wait_for_weights": "its shard",
    "join": "the chief",
    "gather": "all processes",
}
"""Where a process with a role waits for others, and what for."""
_BACKWARD = os.path.join("autograd", "graph.py")  # noqa: PTH118  (a part of a name, not a path)

_FLOWING = 256_000.0
"""Bytes a second between hosts: slower than any network that one trains over, and far more than
words and signs of life."""


class Flow:
    """Whether bytes still flow while processes wait for each other: on a slow network a step takes
    minutes, and nobody hangs. They count as a step's own up to `most_bytes` in one wait, so that
    the traffic of other programs hides no hang for long."""

    def __init__(self, most_bytes: float = 0.0, count: Callable[[], int] = bytes_on_links) -> None:
        self._most_bytes, self._count = most_bytes, count
        self._wait_since = 0.0
        self._first = self._last = 0
        self._looked_at = self._flowed_at = 0.0

    def last_seen(self, wait_since: float, now: float) -> float:
        """When bytes were last seen to flow in the wait that began then, or when it began."""
        counted = self._count()
        if wait_since != self._wait_since:
            self._wait_since = self._flowed_at = wait_since
            self._first = counted
        elif (
            counted - self._last >= _FLOWING * (now - self._looked_at)
            and counted - self._first <= self._most_bytes
        ):
            self._flowed_at = now
        self._last, self._looked_at = counted, now
        return self._flowed_at


class Pulse:
    """Written from the process's start on; `watch` tells it more once the loop exists."""

    def __init__(self, directory: Path, rank: int, stop_asked: Callable[[], bool]) -> None:
        self._file = directory / f"rank-{rank:05d}.json"
        self._rank, self._stop_asked = rank, stop_asked
        self._main = threading.main_thread().ident
        self._clock: PhaseClock | None = None
        self._step: Callable[[], int] = lambda: 0
        self._gradients_ready: Callable[[], float] = lambda: 0.0
        self._flow = Flow()
        self._began = time.perf_counter()
        self._has_begun = False
        self._ended: str | None = None
        self._writing = threading.Lock()
        self._write()  # at once: whoever has not told yet has not met the others either
        threading.Thread(target=self._work, name="pulse", daemon=True).start()

    def watch(
        self,
        clock: PhaseClock,
        step: Callable[[], int],
        gradients_ready: Callable[[], float] = lambda: 0.0,
        most_bytes: float = 0.0,
    ) -> None:
        """`most_bytes`: that a host may send and receive in a step."""
        self._step, self._gradients_ready = step, gradients_ready
        self._flow = Flow(most_bytes)
        self._clock = clock

    def begin(self) -> None:
        """Its steps come now. Told at once, because many short ones fit between two beats, and
        who falls silent in the first of them must not be taken for one that still starts."""
        self._has_begun = True
        self._write()

    def end(self, reason: str) -> None:
        """The last word, so that an end that was asked for is told from one that was not."""
        self._ended = reason
        self._write()

    def _work(self) -> None:
        while self._ended is None:
            time.sleep(_EVERY_SECONDS)
            self._write()

    def _write(self) -> None:
        phase, since = self._clock.now if self._clock else (START_UP, self._began)
        collective, now = self._collective(), time.perf_counter()
        if collective["collective"] is not None:
            since = self._flow.last_seen(since, now)
        beat = {
            "rank": self._rank,
            "pid": os.getpid(),
            "step": self._step(),
            "phase": phase,
            "quiet_seconds": round(now - since, 3),
            **collective,
            "has_begun": self._has_begun,
            "stop_asked": self._stop_asked(),
            "ended": self._ended,
        }
        try:
            with self._writing:
                write_whole(self._file, json.dumps(beat), durable=False)
        except OSError:  # a full disk must not end a run; silence is told from a stopped process
            return

    def _collective(self) -> dict[str, Any]:
        frame = sys._current_frames().get(self._main or 0)
        ready = self._gradients_ready()
        waits_long = ready > 0 and time.perf_counter() - ready > _EVERY_SECONDS
        name, number = collective_of(frame, waits_long), None
        if name is None and waits_for_device(frame):
            pending = pending_collective()
            name, number = (pending.name, pending.number) if pending else (None, None)
        return {"collective": name, "collective_number": number}


def collective_of(frame: FrameType | None, gradients_are_out: bool) -> str | None:
    """What a thread with this innermost frame waits for, if for other processes."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_COLLECTIVES):
            return code.co_name
        if code is wait_for_others.__code__:
            return str(frame.f_locals["collective"])
        if _ROLES in code.co_filename and code.co_name in _WAITS_OF_ROLES:
            return _WAITS_OF_ROLES[code.co_name]
        if gradients_are_out and code.co_filename.endswith(_BACKWARD):
            return "all_reduce of gradients"
        frame = frame.f_back
    return None


def waits_for_device(frame: FrameType | None) -> bool:
    """Whether it waits until the device has done what was queued."""
    while frame is not None:
        if frame.f_code is wait_for_device.__code__:
            return True
        frame = frame.f_back
    return False


def start_pulse(directory: str | None, rank: int, stop_asked: Callable[[], bool]) -> Pulse | None:
    """Where a supervisor asked for it; SIGUSR1 then prints every thread's stack."""
    if directory is None:
        return None
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    return Pulse(Path(directory), rank, stop_asked)
