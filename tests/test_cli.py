"""The command line as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from paceline.cli import dotted_options_as_settings, parse
from tests.conftest import CommandLine
from tests.test_killed_and_resumed import wait_for_step

READERS = ["report runs/a", "log runs/a --csv", "checkpoint runs/a", "recipes", "--help"]


@pytest.fixture
def trained(paceline: CommandLine, finished_run: Path) -> CommandLine:
    paceline.copy(finished_run, "runs/a")
    return paceline


def test_what_reads_a_run_never_imports_torch(trained: CommandLine) -> None:
    for words in READERS:
        code = (
            f"import sys; sys.argv = ['paceline', *{words.split()!r}]\n"
            "from paceline.cli import main\n"
            "try: main()\n"
            "except SystemExit as end: assert not end.code, end.code\n"
            "assert 'torch' not in sys.modules"
        )
        result = subprocess.run(
            [sys.executable, "-c", code],
            cwd=trained.cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{words}: {result.stderr}"


def test_report_checkpoint_and_log_tell_the_story(trained: CommandLine) -> None:
    report = " ".join(trained("report", "runs/a").stdout.split())
    assert "finished at step 12 of 12" in report
    assert "2 saves" in report
    assert "MALLOC_TRIM_THRESHOLD_" in report
    assert "One-cycle: rises" in report
    held = trained("checkpoint", "runs/a").stdout
    assert "optimizer state" in held
    assert [row["step"] for row in trained.table("runs/a")] == ["2", "4", "6", "8", "10", "12"]


def test_the_checkpoint_frequency_really_changes_what_is_saved(paceline: CommandLine) -> None:
    words = paceline.training("runs/a", "steps=6", "evaluate.every_steps=null")
    assert paceline(*words, "--checkpoint.every_steps", "1").returncode == 0
    assert "6 saves" in " ".join(paceline("report", "runs/a").stdout.split())


def test_test_pictures_are_scored_only_when_asked_for(trained: CommandLine) -> None:
    assert "test top-1" not in trained("report", "runs/a").stdout
    result = trained("evaluate", "runs/a", "--split", "test", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["signature"].startswith("test:200 pictures")
    assert "test top-1" in trained("report", "runs/a").stdout


def test_nothing_listens_beyond_this_machine_while_training(paceline: CommandLine) -> None:
    process = paceline.start(*paceline.training("runs/a", "steps=100000"))
    try:
        wait_for_step(paceline.cwd / "runs/a", 1, process)
        family = psutil.Process(process.pid).children(recursive=True)
        listening = {
            connection.laddr.ip
            for member in family
            for connection in member.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening <= {"127.0.0.1", "::1"}
    finally:
        process.kill()
        process.communicate()


def test_settings_may_stand_anywhere_and_be_written_as_options() -> None:
    words = ["train", "x", "--run", "r", "steps=5", "--checkpoint.every_steps", "7"]
    assert parse(words).settings == ["steps=5", "checkpoint.every_steps=7"]
    assert dotted_options_as_settings(["--a.b=1", "--run", "r"]) == ["a.b=1", "--run", "r"]


def test_recipes_show_names_the_peak_rate_and_the_size(paceline: CommandLine) -> None:
    shown = paceline.here("recipes", "show", "nmt-base").stdout
    assert "peak 0.000988 at step 8,000 of 300,000" in shown
    assert "60.9 M parameters (60,880,896)" in shown
    assert "243.5 MB of fp32 gradients" in shown
    assert "730.6 MB per checkpoint" in shown
