"""A heartbeat of the script's process, so that one that hangs can be named from outside.

A thread writes a small file twice a second: rank, step, phase, for how long the main thread has not
moved, where it is in the user's code, and the collective it waits in. When nothing moves, torch's
flight recorder is asked for the collective's number, which all processes count alike. A file named
`stacks-wanted` beside the heartbeats asks for the stacks of all threads, which go into the run.

It judges nothing: who hangs is seen by someone who sees all processes (`launch/script/hangs.py`).
A thread can do all this while the main thread waits in C, where a signal handler could not.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from .flight import Pending, recording, states_of_groups

Where = Callable[[], tuple[int, str]]
"""The number of optimizer steps so far, and the phase."""

_EVERY_SECONDS = 0.5
_STILL_SECONDS = 1.5
"""From when on the flight recorder is asked: a dump takes a millisecond."""
_WANTED = "stacks-wanted"
_START_UP = "start-up"
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launcher.api")
_COLLECTIVES = ("distributed_c10d.py", "rendezvous.py")


class Pulse:
    def __init__(self, folder: str, run: str, where: Where) -> None:
        self._folder, self._run, self._where = folder, run, where
        self._file = f"{folder}/pulse-{os.getpid()}.json"
        self._sign: Any = None
        self._groups: str | None = None
        self._still_since = time.monotonic()
        self._answered = 0.0
        self._pid = os.getpid()
        self._over = threading.Event()
        self._thread: Any = None
        self._start()
        atexit.register(self._beat_last)
        os.register_at_fork(before=self._pause, after_in_parent=self._start)

    def _start(self) -> None:
        if os.getpid() == self._pid:
            self._over.clear()
            self._thread = threading.Thread(target=self._work, name="paceline-pulse", daemon=True)
            self._thread.start()

    def _pause(self) -> None:
        """A process that forks should have one thread: Python warns of others, and a lock that one
        of them holds is held in the child for good."""
        if os.getpid() == self._pid and self._thread is not None:
            self._over.set()
            self._thread.join(1.0)

    def _beat_last(self) -> None:
        """Whoever looks after the end wants the last step, not that of half a second ago."""
        if os.getpid() == self._pid:
            with contextlib.suppress(Exception):
                self._beat()

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                self._beat()
                self._answer()
            except Exception:  # noqa: S110  (a full disk, a torch that is half imported)
                pass
            self._over.wait(_EVERY_SECONDS)

    def _beat(self) -> None:
        rank = find_rank()
        if rank is None:
            return
        step, phase = self._where()
        frame = main_frame()
        at, called, sign = place_in_code(frame)
        now = time.monotonic()
        self._note_movement((step, phase, sign), now)
        pending = self._ask_recorder(now)
        write_json(
            self._file,
            {
                "pid": os.getpid(),
                "rank": rank,
                "step": step,
                "phase": phase,
                "at": at,
                "quiet_seconds": round(now - self._still_since, 3),
                "collective": pending.name if pending else called,
                "collective_number": pending.number if pending else None,
                "collective_sizes": pending.sizes if pending else None,
                "collective_group": pending.group if pending else None,
                "has_group": has_group(),
            },
        )

    def _note_movement(self, sign: Any, now: float) -> None:
        if sign != self._sign:
            self._sign, self._still_since = sign, now

    def _ask_recorder(self, now: float) -> Pending | None:
        """Where the main thread stands still; collectives that go on are movement too."""
        if now - self._still_since < _STILL_SECONDS:
            self._groups = None
            return None
        told = recording()
        groups = states_of_groups(told)
        if self._groups not in (None, groups):
            self._still_since = now
        self._groups = groups
        return Pending.oldest(told)

    def _answer(self) -> None:
        wanted = os.stat(f"{self._folder}/{_WANTED}").st_mtime  # noqa: PTH116
        rank = find_rank()
        if rank is None or wanted <= self._answered:
            return
        self._answered = wanted
        keep_stacks(f"{self._run}/stacks", rank)


def start_pulse(folder: str | None, run: str, where: Where) -> Pulse | None:
    return Pulse(folder, run, where) if folder else None


_PHASES = {
    "asked": "input",
    "got": "compute",
    "in backward": "compute",
    "after backward": "compute",
    "in step": "optimizer",
}
"""By the boundary that the loop has passed last."""


def whereabouts(observer: Any) -> tuple[int, str]:
    """Step and phase of what an `Observer` has seen so far."""
    step = observer.recorder.step if observer.recorder is not None else 0
    times = observer.times
    if observer._save_depth:
        return step, "checkpoint"
    if observer._collective_depth:
        return step, "network"
    if times.is_evaluating:
        return step, "evaluate"
    if times.loop_started is None:
        return step, _START_UP
    return step, _PHASES.get(times.place, "unexplained")


def find_rank() -> int | None:
    """None of a helper process, such as a loader's worker, and where nobody has told."""
    if has_group():
        return int(sys.modules["torch.distributed"].get_rank())
    if _is_child():
        return None
    for name in _RANKS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    is_launcher = any(name in sys.modules for name in _LAUNCHERS)
    return None if is_launcher else 0


def _is_child() -> bool:
    """Of multiprocessing; such a process is of the world only if it joins a group."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def has_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    try:
        return distributed is not None and bool(distributed.is_initialized())
    except AttributeError:  # a torch without it, or one that is being imported
        return False


def main_frame() -> Any:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def place_in_code(frame: Any) -> tuple[str | None, str | None, Any]:
    """Innermost line of the user's own code, what it waits for if that is another process, and
    something that changes whenever the thread moves."""
    at = called = None
    sign = []
    while frame is not None:
        code = frame.f_code
        sign.append((id(code), frame.f_lasti))
        if called is None and os.path.basename(code.co_filename) in _COLLECTIVES:  # noqa: PTH119
            called = code.co_name
        elif called is not None and code.co_filename.endswith(_COLLECTIVES):
            called = code.co_name  # the outermost is what the user called
        if at is None and _is_own(code.co_filename):
            name = os.path.basename(code.co_filename)  # noqa: PTH119
            at = f"{name}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return at, (None if called == "wrapper" else called), tuple(sign)


def _is_own(filename: str) -> bool:
    if filename.startswith("<") or "site-packages" in filename or "dist-packages" in filename:
        return False
    return not filename.startswith((os.path.dirname(os.__file__), os.path.dirname(__file__)))  # noqa: PTH120


def keep_stacks(folder: str, rank: int) -> None:
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"rank {rank}, process {os.getpid()}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            lines.append(f"\nthread {names.get(ident, ident)}:\n")
            lines += traceback.format_stack(frame)
    write_text(f"{folder}/rank-{rank:05d}.txt", "".join(lines))
    told = recording()
    if told:
        write_json(f"{folder}/rank-{rank:05d}.flight.json", told)


def write_json(path: str, value: Any) -> None:
    write_text(path, json.dumps(value))


def write_text(path: str, text: str) -> None:
    """Whole or not at all, for somebody reads it meanwhile."""
    new = f"{path}.{os.getpid()}.new"
    try:
        with open(new, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        os.replace(new, path)  # noqa: PTH105
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new)  # noqa: PTH108
