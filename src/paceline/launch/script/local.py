"""A script on this machine, observed: started as the user would, ended as it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from paceline.errors import Say, UserError
from paceline.launch.claim import next_attempt, note_end, note_launch
from paceline.launch.scratch import scratch_directory
from paceline.launch.script.claim import claim_script_run, remove_unused
from paceline.launch.script.command import ScriptCommand
from paceline.launch.script.ending import Conclusion, conclude
from paceline.launch.script.environment import ObserveOrder, observing_environment
from paceline.launch.script.hang_watch import RECORDED, naming_hangs
from paceline.launch.script.probing import probing
from paceline.lifetime import process_started
from paceline.machine.cores import num_cores
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to the script as well, which is in the same group."""


@dataclass(frozen=True)
class Ended:
    code: int
    conclusion: Conclusion
    was_told_to_end: bool = False
    """SIGTERM came before it ended."""


def run_script(
    run: RunDirectory, command: ScriptCommand, say: Say, output: int | None = None
) -> Ended:
    """Until it ends; the code is its own. `output`: a file in place of its standard output."""
    started = process_started()
    with claim_script_run(run, command, say):
        attempt = next_attempt(run)
        events = EventFile(run.launcher_events, attempt)
        events.write(
            "launch",
            started=started,
            command=" ".join(command.words),
            num_procs=command.num_procs or 1,
            num_cores=num_cores(),
            launcher="run",
        )
        note_launch(run, None, [])
        with scratch_directory(run.path) as scratch, naming_hangs(scratch, run.path, say):
            order = ObserveOrder(str(run.path), attempt, started, pulse_directory=str(scratch))
            code, was_told_to_end = _run_process(run, command, order, output)
        events.write("exit", code=code)
        events.close()
        note_end(run, code)
        conclusion = conclude(run, code, attempt, say)
        if attempt == 1:
            remove_unused(run)
    return Ended(code, conclusion, was_told_to_end)


def _run_process(
    run: RunDirectory, command: ScriptCommand, order: ObserveOrder, output: int | None
) -> tuple[int, bool]:
    """Its exit code, and whether it was told to end."""
    sys.stdout.flush()
    signals = PassedOn()
    with signals.caught(), probing(run, order.attempt, socket.gethostname()):
        try:
            process = subprocess.Popen(
                command.words,
                env={**RECORDED, **os.environ, **observing_environment(order)},
                stdout=output,
            )
        except OSError as error:
            raise UserError(
                f"cannot start {command.words[0]}: {error.strerror}", "check the command"
            ) from error
        signals.follow(process)
        code = process.wait()
    return (code if code >= 0 else 128 - code), signals.had(signal.SIGTERM)


class PassedOn:
    """The script decides what a signal means; the launcher outlives it to write how it ended.
    Caught before the script starts, so that none ends the launcher alone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._had: set[int] = set()

    def follow(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        for number in self._early:
            self._pass_on(number, None)

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._pass_on) for number in _PASSED_ON}
        before |= {number: signal.signal(number, self._stay) for number in _FROM_TERMINAL}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def had(self, number: int) -> bool:
        return number in self._had

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._had.add(number)
        if self._process is None:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _stay(self, number: int, _frame: FrameType | None) -> None:
        if not sys.stdin or not sys.stdin.isatty():  # sent to the launcher alone, by a program
            self._pass_on(number, None)
