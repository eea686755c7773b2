"""Nothing of a run stays behind in the temporary directory, however it ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.launch.scratch import remove_leftovers, scratch_directory
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def wait_until_empty(folder: Path, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(folder.iterdir()):
        time.sleep(0.1)
    assert not list(folder.iterdir())


def test_a_finished_run_leaves_nothing(paceline: CommandLine, temporary: Path) -> None:
    words = paceline.training("runs/a", "steps=2", "evaluate.every_steps=null")
    result = paceline(*words, TMPDIR=str(temporary))
    assert result.returncode == 0, result.stderr
    assert not list(temporary.iterdir())


def test_a_killed_launcher_leaves_nothing(paceline: CommandLine, temporary: Path) -> None:
    process = subprocess.Popen(
        paceline.command(*paceline.training("runs/a", "steps=100000")),
        cwd=paceline.cwd,
        env=paceline.environment(TMPDIR=str(temporary)),
    )
    events = RunDirectory(paceline.cwd / "runs/a").rank_events(0)
    until = time.monotonic() + 120
    while not events.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert list(temporary.iterdir()), "the store, while it trains"
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_empty(temporary)


def test_a_world_of_a_batch_system_leaves_nothing(paceline: CommandLine, temporary: Path) -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29641"}
    words = paceline.training("runs/a", "steps=2", "evaluate.every_steps=null")
    processes = [
        subprocess.Popen(
            paceline.command(*words),
            cwd=paceline.cwd,
            env=paceline.environment(
                **place,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE="2",
                TMPDIR=str(temporary),
            ),
        )
        for rank in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert not list(temporary.iterdir())


def test_a_directory_goes_with_the_process_that_was_killed(temporary: Path) -> None:
    script = (
        "import time, pathlib; from paceline.launch.scratch import scratch_directory\n"
        "with scratch_directory(pathlib.Path('run')) as folder:\n"
        "    print(folder, flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert Path(process.stdout.readline().strip()).is_dir()
    process.kill()
    process.communicate()
    wait_until_empty(temporary)


def test_what_a_crash_left_goes_at_the_next_start_and_what_is_in_use_stays(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    run = tmp_path / "run"
    with scratch_directory(run) as first, scratch_directory(run) as second:
        left = first.with_name(f"{first.name}-left")
        left.mkdir()
        (left / ".lock").touch()
        other = first.with_name("paceline-of-another-run")
        other.mkdir()
        remove_leftovers(run)
        assert not left.exists()
        assert first.is_dir() and second.is_dir() and other.is_dir()
    assert list(temporary.iterdir()) == [other]
