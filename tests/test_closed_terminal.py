"""A closed terminal never loses a run: real terminals, real hang-ups; hosts: tests/cluster."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.directory import is_being_trained
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine
from tests.on_a_terminal import Terminal

UNTIL_STOPPED = ["steps=100000", "checkpoint.every_steps=null", "evaluate.every_steps=null"]
Opens = Callable[..., Terminal]


@pytest.fixture
def open_terminal(paceline: CommandLine) -> Iterator[Opens]:
    opened: list[Terminal] = []

    def opens(command: list[str], **variables: str) -> Terminal:
        environment = paceline.environment(**variables)
        opened.append(Terminal.start(command, paceline.cwd, environment))
        return opened[-1]

    yield opens
    for terminal in opened:
        terminal.end()


def wait_for_the_end(run: RunDirectory) -> None:
    until = time.monotonic() + 60
    while is_being_trained(run) is not False and time.monotonic() < until:
        time.sleep(0.05)
    assert is_being_trained(run) is False


def saved_steps(run: RunDirectory) -> list[int]:
    return [step_of(path) for path in all_checkpoints(run.checkpoints)]


def recorded_steps(run: RunDirectory) -> int:
    steps = [event["step"] for event in read_events(run.rank_events(0)) if event["kind"] == "steps"]
    return max(steps, default=0)


def test_a_run_saves_and_ends_when_its_terminal_closes(
    paceline: CommandLine, open_terminal: Opens
) -> None:
    words = paceline.training("runs/a", *UNTIL_STOPPED)
    terminal = open_terminal(paceline.command(*words))
    terminal.wait_for("step 2")
    terminal.close()
    run = RunDirectory(paceline.cwd / "runs/a")
    wait_for_the_end(run)
    assert saved_steps(run) == [recorded_steps(run)]
    assert "runs/a  stopped  step" in paceline("runs").stdout


@pytest.mark.cluster
def test_a_process_of_a_scheduler_saves_and_ends_when_its_terminal_closes(
    paceline: CommandLine, open_terminal: Opens
) -> None:
    """As `mpirun`, `srun` or variables set by hand start it, in a terminal."""
    words = paceline.training("runs/a", *UNTIL_STOPPED)[:-2]
    place = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    terminal = open_terminal(paceline.command(*words), **place)
    terminal.wait_for("step 2")
    terminal.close()
    run = RunDirectory(paceline.cwd / "runs/a")
    wait_for_the_end(run)
    assert saved_steps(run) == [recorded_steps(run)]
    assert "runs/a  stopped  step" in paceline("runs").stdout


def test_a_run_below_a_shell_saves_though_hang_ups_come_twice(
    paceline: CommandLine, open_terminal: Opens
) -> None:
    """The shell passes the hang-up on, and the kernel sends another when the shell ends."""
    terminal = open_terminal(["bash", "--norc", "--noprofile", "-i"])
    words = paceline.training("runs/a", *UNTIL_STOPPED, procs=1)
    terminal.type_line(shlex.join(paceline.command(*words)))
    terminal.wait_for("step 2")
    terminal.close()
    run = RunDirectory(paceline.cwd / "runs/a")
    wait_for_the_end(run)
    assert saved_steps(run) == [recorded_steps(run)]
    assert "runs/a  stopped  step" in paceline("runs").stdout


@pytest.mark.cluster
def test_a_run_under_nohup_goes_on_without_its_terminal(
    paceline: CommandLine, open_terminal: Opens
) -> None:
    words = paceline.training("runs/a", *UNTIL_STOPPED, procs=1)
    terminal = open_terminal(["nohup", *paceline.command(*words)])
    run = RunDirectory(paceline.cwd / "runs/a")
    until = time.monotonic() + 60
    while not recorded_steps(run) and time.monotonic() < until:
        time.sleep(0.05)
    terminal.close()
    goes_on_beyond(run, recorded_steps(run) + 20)
    assert paceline("stop", "runs/a").returncode == 0
    assert saved_steps(run) == [recorded_steps(run)]


def goes_on_beyond(run: RunDirectory, step: int) -> None:
    until = time.monotonic() + 60
    while recorded_steps(run) <= step and time.monotonic() < until:
        time.sleep(0.05)
    assert recorded_steps(run) > step


def test_a_run_that_nobody_hangs_up_goes_on_without_its_terminal(
    paceline: CommandLine, open_terminal: Opens
) -> None:
    """As after `disown`: every line of progress meets a terminal that is gone."""
    words = paceline.training("runs/a", *UNTIL_STOPPED, procs=1)
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], process_group=0)\n"
        "child.wait()\n"
    )
    terminal = open_terminal([sys.executable, "-c", script, *paceline.command(*words)])
    terminal.wait_for("step 2")
    terminal.close()
    terminal.process.wait(30)  # killed by the hang-up; the run is in another process group
    run = RunDirectory(paceline.cwd / "runs/a")
    goes_on_beyond(run, recorded_steps(run) + 20)
    assert paceline("stop", "runs/a").returncode == 0
    assert saved_steps(run) == [recorded_steps(run)]


@pytest.mark.cluster
def test_a_run_saves_and_ends_as_asked_when_what_it_prints_into_has_ended(
    paceline: CommandLine,
) -> None:
    """`paceline train ... 2>&1 | head -1` and then Ctrl-C."""
    words = paceline.training("runs/a", *UNTIL_STOPPED, "log.show_seconds=0.01", procs=1)
    process = subprocess.Popen(
        paceline.command(*words),
        cwd=paceline.cwd,
        env=paceline.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    run = RunDirectory(paceline.cwd / "runs/a")
    goes_on_beyond(run, 20)
    process.terminate()
    assert process.wait(60) == 143
    assert saved_steps(run) == [recorded_steps(run)]


_TALKS_IN_A_HANDLER = """
import os, signal, threading, time
from paceline.terminal import outlive_terminal, say_on_stderr
outlive_terminal()
signal.signal(signal.SIGHUP, lambda *_: say_on_stderr("saving, then stopping"))
def hang_up():
    for _ in range(300):
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.001)
    done.append(True)
done = []
threading.Thread(target=hang_up).start()
while not done:
    say_on_stderr("a line of a host " * 500)
"""


def test_a_hang_up_in_the_middle_of_a_line_ends_nobody() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _TALKS_IN_A_HANDLER], stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.5)  # nobody reads: it is stopped in the middle of a line
    _, said = process.communicate()
    assert process.returncode == 0, said[-2000:]
    assert "saving, then stopping" in said
