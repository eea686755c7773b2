"""A run that is killed anywhere and resumed ends exactly as if nothing had happened."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine, workers_of

SETTINGS = [
    "steps=24",
    "evaluate.every_steps=6",
    "evaluate.batch=20",
    "checkpoint.every_steps=4",
    "checkpoint.keep_last=2",
]


def last_step(run: Path) -> int:
    events = read_events(RunDirectory(run).rank_events(0))
    return max((event["step"] for event in events if event["kind"] == "steps"), default=0)


def in_a_step(run: Path) -> bool:
    return last_step(run) >= 5


def in_a_save(run: Path) -> bool:
    """What is being written has a name that begins with a dot."""
    return any((run / "checkpoints").glob(".step-*"))


def in_an_evaluation(run: Path) -> bool:
    return last_step(run) % 6 == 0 and last_step(run) >= 12


def kill_when(
    paceline: CommandLine, run: str, moment: Callable[[Path], bool], rng: random.Random, *more: str
) -> bool:
    """Start the run, kill a worker or the launcher at the moment; False if it was over before."""
    process = paceline.start(*paceline.training(run, *SETTINGS, *more))
    while not moment(paceline.cwd / run):
        if process.poll() is not None:
            process.communicate()
            return False
        time.sleep(0.001)
    family = psutil.Process(process.pid).children(recursive=True)
    workers = workers_of(process.pid)
    victim = rng.choice([process.pid, *(worker.pid for worker in workers)])
    with suppress(ProcessLookupError):  # a worker whose work was done in this very moment
        os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=120)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive, "processes were left behind"
    return True


def finish(paceline: CommandLine, run: str, *more: str) -> None:
    result = paceline.train(run, *SETTINGS, *more)
    assert result.returncode == 0, result.stderr


def outcome(paceline: CommandLine, run: str) -> tuple[str, list[tuple[str, ...]]]:
    """Weights, and every row of the curves without its timings."""
    columns = ("step", "epochs", "loss", "rate", "validation_top1", "validation_loss")
    rows = [tuple(row[name] for name in columns) for row in paceline.table(run)]
    return paceline.weights(run), rows


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> CommandLine:
    """With runs/whole, which nothing happened to."""
    paceline = CommandLine(tmp_path_factory.mktemp("undisturbed"), pictures)
    finish(paceline, "runs/whole")
    return paceline


def test_killed_in_a_step_a_save_and_an_evaluation_it_ends_bit_for_bit_the_same(
    paceline: CommandLine, undisturbed: CommandLine
) -> None:
    rng = random.Random(7)
    for moment in (in_a_step, in_a_save, in_an_evaluation):
        kill_when(paceline, "runs/killed", moment, rng)
    finish(paceline, "runs/killed")
    assert outcome(paceline, "runs/killed") == outcome(undisturbed, "runs/whole")
    report = paceline("report", "runs/killed").stdout
    assert "attempts" in report
    assert "restart" in report


@pytest.mark.cluster
def test_killed_twenty_times_at_random_it_ends_bit_for_bit_the_same(
    paceline: CommandLine, undisturbed: CommandLine
) -> None:
    whole = outcome(undisturbed, "runs/whole")
    rng = random.Random(int.from_bytes(os.urandom(4)))
    kills = 0
    while kills < 20:
        wait_seconds = rng.uniform(0.0, 4.0)
        began: list[float] = []

        def after_a_while(
            run: Path, began: list[float] = began, wait: float = wait_seconds
        ) -> bool:
            """A random time after the workers have begun (start-up is killed too, now and then)."""
            if not began and (RunDirectory(run).rank_events(0).exists() or rng.random() < 1e-4):
                began.append(time.monotonic())
            return bool(began) and time.monotonic() - began[0] >= wait

        if kill_when(paceline, "runs/killed", after_a_while, rng):
            kills += 1
        else:
            finish(paceline, "runs/killed")
            assert outcome(paceline, "runs/killed") == whole
            shutil.rmtree(paceline.cwd / "runs/killed")
    finish(paceline, "runs/killed")
    assert outcome(paceline, "runs/killed") == whole


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_ends_every_process_and_says_how_to_go_on(
    paceline: CommandLine, number: signal.Signals, code: int
) -> None:
    words = paceline.training("runs/a", "steps=100000", "checkpoint.every_steps=null")
    process = paceline.start(*words)
    wait_for_step(paceline.cwd / "runs/a", 3, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Go on with:\n  paceline train cifar10-tiny" in errors
    assert not psutil.wait_procs(family, timeout=10)[1]
    saved = last_step(paceline.cwd / "runs/a")
    assert f"saved at step {saved:,}" in errors
    if number == signal.SIGINT:
        more = paceline.train("runs/a", f"steps={saved + 1}")
        assert more.returncode == 0, more.stderr
        assert f"goes on from step {saved:,}" in more.stderr


def test_a_second_interrupt_ends_at_once(paceline: CommandLine) -> None:
    process = paceline.start(*paceline.training("runs/a", "steps=100000"))
    wait_for_step(paceline.cwd / "runs/a", 1, process)
    family = psutil.Process(process.pid).children(recursive=True)
    workers = workers_of(process.pid)
    for worker in workers:
        worker.suspend()  # a worker that cannot react to the first signal
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not psutil.wait_procs(family, timeout=10)[1]


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    while last_step(run) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_killed_worker_is_named_and_the_others_end(paceline: CommandLine) -> None:
    process = paceline.start(*paceline.training("runs/a", "steps=100000"))
    wait_for_step(paceline.cwd / "runs/a", 2, process)
    family = psutil.Process(process.pid).children(recursive=True)
    workers = workers_of(process.pid)
    workers[0].kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"(pid {workers[0].pid}) was killed by SIGKILL" in errors
    assert "Go on with:" in errors
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_phases_add_up_to_the_wall_time_that_an_observer_measures(paceline: CommandLine) -> None:
    began = time.monotonic()
    result = paceline.train("runs/a", "steps=60", "evaluate.every_steps=20")
    observed_seconds = time.monotonic() - began
    assert result.returncode == 0, result.stderr
    report = paceline("report", "runs/a").stdout
    line = next(line for line in report.splitlines() if line.startswith("in all"))
    # An observer also sees the process being made and buried, which a busy machine does slowly.
    assert float(line.split()[2]) == pytest.approx(observed_seconds, rel=0.01, abs=1.0)


def test_curves_have_no_doubled_point_in_tensorboard_after_a_restart(
    paceline: CommandLine, undisturbed: CommandLine
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = paceline.copy(undisturbed.cwd / "runs/whole", "runs/a")
    shutil.rmtree(run / "checkpoints/step-0000024")
    finish(paceline, "runs/a")
    board = EventAccumulator(str(paceline.cwd / "runs/a/tensorboard"))
    board.Reload()
    assert [point.step for point in board.Scalars("loss")] == list(range(1, 25))
    names = set(board.Tags()["scalars"])
    assert {"learning rate", "units per second", "validation/top1", "phase/compute"} <= names
    assert "gradient norm" in names
