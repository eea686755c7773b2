"""The worker processes of one agent, from their start to their exit code.

On Linux they are forked from the agent, which has imported torch already and has no threads yet:
that takes milliseconds where a fresh interpreter takes seconds. They wait for their variables
(rank, world size) before they do anything. Elsewhere each one is started anew, because the
libraries of a Mac do not survive a fork.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from paceline.lifetime import die_with_parent
from paceline.machine.process_title import show_as_module

CAN_FORK = sys.platform == "linux"
_MODULE = "paceline.train.worker"
_LOOK_SECONDS = 0.05


class Worker(Protocol):
    @property
    def pid(self) -> int: ...

    def begin(self, variables: dict[str, str]) -> None: ...

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None as long as it runs."""

    def send_signal(self, number: int, /) -> None: ...


def prepare_workers(run: str, num_procs: int, process_name: str) -> list[Worker]:
    """`process_name`: the module by which this process is known to `ps`."""
    if not CAN_FORK:
        return [StartedWorker(run) for _ in range(num_procs)]
    workers: list[Worker] = []
    pipes: list[int] = []
    for _ in range(num_procs):
        workers.append(ForkedWorker(run, pipes, process_name))
    return workers


def end_workers(workers: Sequence[Worker], number: int, timeout_seconds: float) -> None:
    """Send the signal to those that still run, and kill who has not ended in time."""
    until = time.monotonic() + timeout_seconds
    for worker in workers:
        worker.send_signal(number)
    while any(worker.poll() is None for worker in workers):
        if time.monotonic() > until:
            number, until = signal.SIGKILL, float("inf")
            for worker in workers:
                worker.send_signal(number)
        time.sleep(_LOOK_SECONDS)


class ForkedWorker:
    def __init__(self, run: str, pipes: list[int], process_name: str) -> None:
        """`pipes`: ends that are this process's alone; the new one is added."""
        reading, self._writing = os.pipe()
        pipes.append(self._writing)
        agent = os.getpid()
        self._code: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _live(run, reading, pipes, agent, process_name)
        os.close(reading)

    @property
    def pid(self) -> int:
        return self._pid

    def begin(self, variables: dict[str, str]) -> None:
        try:
            with os.fdopen(self._writing, "w") as pipe:
                json.dump(variables, pipe)
        except BrokenPipeError:  # it was killed meanwhile, which the next look at it will tell
            return

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # not yet waited for, so the number is still its own
            os.kill(self._pid, number)


def _live(run: str, reading: int, pipes: list[int], agent: int, process_name: str) -> NoReturn:
    try:
        from paceline.train import worker  # noqa: PLC0415

        worker.catch_signals()
        die_with_parent(agent)
        os.setsid()
        show_as_module(_MODULE, instead_of=process_name)
        for pipe in pipes:
            os.close(pipe)
        with os.fdopen(reading) as variables:
            os.environ.update(json.load(variables))
        worker.work(Path(run))
    finally:
        os._exit(1)


class StartedWorker:
    def __init__(self, run: str) -> None:
        self._words = [sys.executable, "-u", "-m", _MODULE, run]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def begin(self, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            self._words, env={**os.environ, **variables}, start_new_session=True
        )

    def poll(self) -> int | None:
        return self._process.poll() if self._process else 0

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
