"""All processes of one host where the engine starts only one: one command line for each of them.

They are then what mpirun or srun would have started, so that everything after it is the same.
"""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from paceline.launch.batch.engines import Node
from paceline.machine.signals import FROM_A_SCHEDULER, caught_by

_GRACE_SECONDS = 30.0
"""For the others to end by themselves once one has failed."""


def start_all(node: Node, num_procs: int, words: list[str]) -> int:
    """The first exit code that is not 0, of as many processes as the host has devices."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "paceline.cli", *words],
            env={**os.environ, **node.place(number, num_procs).to_environment()},
        )
        for number in range(num_procs)
    ]

    def pass_on(number: int, _frame: Any) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    with caught_by(pass_on, FROM_A_SCHEDULER):
        return _wait(processes)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Where one has failed the others hang; they may notice it themselves, and say more then."""
    failed_at: float | None = None
    code = 0
    while any(process.poll() is None for process in processes):
        time.sleep(0.2)
        failed = [p.returncode for p in processes if p.returncode]
        if failed and failed_at is None:
            code, failed_at = failed[0], time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > _GRACE_SECONDS:
            for process in processes:
                process.kill()
    codes = [process.returncode for process in processes if process.returncode]
    first = code or (codes[0] if codes else 0)
    return first if first >= 0 else 128 - first


def end_this_process() -> None:
    """As the engine itself would ask: the handlers pass it on to all workers."""
    os.kill(os.getpid(), signal.SIGTERM)
