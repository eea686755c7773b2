"""Runs that live on without a terminal, on one machine; many hosts are in tests/cluster."""

import json
import time
from pathlib import Path

from paceline.launch.remote.collect import join_events
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine


def test_a_detached_run_is_listed_followed_and_stopped(paceline: CommandLine) -> None:
    state = {"XDG_STATE_HOME": str(paceline.cwd / "state")}
    run = RunDirectory(paceline.cwd / "runs" / "a")
    words = paceline.training("runs/a", "steps=100000", "checkpoint.every_steps=5", procs=1)
    began = paceline(*words, "--detach", **state)
    assert began.returncode == 0, began.stderr
    assert "paceline attach runs/a" in began.stderr
    until = time.monotonic() + 60
    while not list(run.checkpoints.glob("step-*")) and time.monotonic() < until:
        time.sleep(0.1)
    assert "runs/a  training  step" in paceline("runs", **state).stdout
    again = paceline(*words, "--detach", **state)
    assert again.returncode == 2
    assert "is being trained already" in again.stderr

    stopped = paceline("stop", "runs/a", **state)
    assert stopped.returncode == 0, stopped.stderr
    assert "has stopped, saved at step" in stopped.stderr
    followed = paceline("attach", "runs/a", **state)
    assert followed.returncode == 143
    assert "Go on with:" in followed.stdout
    assert "runs/a  stopped  step" in paceline("runs", **state).stdout


def test_a_mistake_of_a_detached_run_is_seen_at_once(paceline: CommandLine) -> None:
    result = paceline("train", "cifar10-tiny", "data=/nowhere", "--run", "runs/a", "--detach")
    assert result.returncode == 2
    assert "/nowhere" in result.stderr


def test_stopping_what_does_not_run_says_so(paceline: CommandLine) -> None:
    assert paceline.train("runs/a", "steps=1", procs=1).returncode == 0
    result = paceline("stop", "runs/a")
    assert result.returncode == 0
    assert "is not being trained" in result.stderr


def test_events_of_a_rank_that_moved_between_hosts_become_one_story(tmp_path: Path) -> None:
    def write(path: Path, *times: float) -> Path:
        path.write_text("".join(json.dumps({"time": t}) + "\n" for t in times), encoding="utf-8")
        return path

    ours, theirs = write(tmp_path / "a", 1.0, 4.0), write(tmp_path / "b", 1.0, 2.0, 3.0)
    join_events(ours, theirs)
    lines = ours.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["time"] for line in lines] == [1.0, 2.0, 3.0, 4.0]
