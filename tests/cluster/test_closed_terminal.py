"""The terminal of a run on many hosts is closed: all hosts save, and everything is collected."""

import time
from pathlib import Path

import pytest

from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.directory import is_being_trained, read_launch
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import environment, words
from tests.on_a_terminal import Terminal

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("place", ["shared", "each its own"])
def test_a_run_on_hosts_saves_and_ends_when_its_terminal_closes(
    lab: PracticeLab, pictures: Path, tmp_path: Path, place: str
) -> None:
    path = tmp_path / "run" if place == "shared" else lab.local / "run"
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    settings = ["steps=100000", "checkpoint.every_steps=null"]
    command = [*words(pictures, path, *settings), "--hosts", str(hosts)]
    terminal = Terminal.start(command, tmp_path, environment())
    run = RunDirectory(path)
    try:
        terminal.wait_for("] step ")
        terminal.close()
        until = time.monotonic() + 90
        while is_being_trained(run) is not False and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        terminal.end()
    assert is_being_trained(run) is False
    steps = [e["step"] for e in read_events(run.rank_events(0)) if e["kind"] == "steps"]
    saved = [step_of(checkpoint) for checkpoint in all_checkpoints(run.checkpoints)]
    assert saved == [max(steps)]
    assert read_launch(run)["code"] == 129  # 128 + SIGHUP: it was stopped, and said so
