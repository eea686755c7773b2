"""Training with parameter servers on one machine: real processes, as a user starts them."""

import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine, Result

SERVERS = "strategy=parameter-server"
QUIET = ["evaluate.every_steps=null", "evaluate.train_samples=0", "log.probe_seconds=100"]


def words(paceline: CommandLine, run: str, roles: str, *settings: str) -> list[str]:
    without_procs = paceline.training(run, SERVERS, *settings)[:-2]
    return [*without_procs, "--roles", roles]


def train(paceline: CommandLine, run: str, roles: str, *settings: str) -> Result:
    result = paceline(*words(paceline, run, roles, *settings))
    assert result.returncode == 0, result.stderr
    return result


def events(paceline: CommandLine, run: str, rank: int = 0) -> list[Event]:
    return read_events(RunDirectory(paceline.cwd / run).rank_events(rank))


def lines(paceline: CommandLine, run: str, rank: int = 0) -> list[Event]:
    return [event for event in events(paceline, run, rank) if event["kind"] == "steps"]


def trained_leases(paceline: CommandLine, run: str) -> list[int]:
    """The first micro-batch of what made each update."""
    return [int(first) for line in lines(paceline, run) for first in line["leases"]]


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 100
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


def worker_processes(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """By rank."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        if "paceline.train.worker" in child.cmdline():
            found[int(child.environ()["RANK"])] = child
    return found


def test_in_step_it_trains_as_all_reduce_does_batch_norm_included(paceline: CommandLine) -> None:
    settings = ["steps=50", "evaluate.every_steps=50", "evaluate.batch=37", "schedule.rate=0.05"]
    settings.append("optimizer.clip_norm=2.0")
    assert paceline.train("runs/ring", *settings, procs=2).returncode == 0
    train(paceline, "runs/servers", "chief=1,worker=1,server=2", *settings)
    ring, servers = (paceline.losses(f"runs/{name}") for name in ("ring", "servers"))
    assert len(ring) == 50
    assert servers == pytest.approx(ring, rel=1e-5)
    last = [paceline.table(f"runs/{name}")[-1] for name in ("ring", "servers")]
    scores = [float(row["validation_loss"]) for row in last]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)
    for verb in (["evaluate", "runs/servers"], ["checkpoint", "runs/servers"]):
        assert paceline(*verb).returncode == 0
