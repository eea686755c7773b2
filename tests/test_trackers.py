"""`report --to` and `log.tracker`: reports and scalars in trackers, in their offline modes.

What needs a tracker's own package is run by `make test-frameworks`, which installs W&B and MLflow;
trackio's pins do not fit beside ours, so its test runs where somebody installed it."""

import json
import os
import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import CommandLine
from tests.stored_runs import plateaued


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(package) is None, reason=f"{package} is not installed (extra 'trackers')"
    )


def bytes_below(directory: Path, pattern: str) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob(pattern) if path.is_file())


@pytest.mark.frameworks
@needs("wandb")
def test_a_report_goes_to_a_run_of_wandb(tmp_path: Path, paceline: CommandLine) -> None:
    run = plateaued(tmp_path / "a").path
    offline = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_RUN_ID": "mine42"}
    result = paceline("report", str(run), "--to", "wandb", **offline)
    assert result.returncode == 0, result.stderr
    assert "sent the report to wandb" in result.stderr + result.stdout
    assert len(list(tmp_path.glob("wandb/offline-run-*-mine42"))) == 1
    assert b"paceline/verdict" in bytes_below(tmp_path / "wandb", "*.wandb")
    pages = [p for p in (tmp_path / "wandb").rglob("*.html") if p.is_file()]
    assert pages and "Where the time went" in pages[0].read_text()
    del offline["WANDB_RUN_ID"]
    again = paceline("report", str(run), "--to", "wandb", **offline)
    assert again.returncode == 0, again.stderr
    assert json.loads((run / "trackers.json").read_text())["wandb"].endswith("mine42")


@pytest.mark.frameworks
@needs("mlflow")
def test_a_report_goes_to_a_run_of_mlflow(tmp_path: Path, paceline: CommandLine) -> None:
    run = plateaued(tmp_path / "a").path
    store = {
        "MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    result = paceline("report", str(run), "--to", "mlflow", **store)
    assert result.returncode == 0, result.stderr
    number = json.loads((run / "trackers.json").read_text())["mlflow"]
    (kept,) = (tmp_path / "store").glob(f"*/{number}")
    assert (kept / "tags/paceline/verdict").read_text() == "network"
    assert (kept / "metrics/paceline/phase_seconds/compute").exists()
    assert (kept / "metrics/paceline/host/one/sent_bytes_per_second").exists()
    assert "Where the time went" in (kept / "artifacts/paceline/report.html").read_text()
    named = paceline("report", str(run), "--to", "mlflow", "--to-run", "f" * 32, **store)
    assert named.returncode == 2 and "did not take" in named.stderr


@pytest.mark.frameworks
@needs("trackio")
def test_a_report_goes_to_a_run_of_trackio(tmp_path: Path, paceline: CommandLine) -> None:
    run = plateaued(tmp_path / "a").path
    home = {"TRACKIO_DIR": str(tmp_path / "trackio")}
    result = paceline("report", str(run), "--to", "trackio", "--to-run", "lab/first", **home)
    assert result.returncode == 0, result.stderr
    with sqlite3.connect(tmp_path / "trackio" / "lab.db") as store:
        rows = store.execute("SELECT run_name, metrics FROM metrics").fetchall()
    assert {name for name, _ in rows} == {"first"}
    assert any("paceline/verdict" in str(metrics) for _, metrics in rows)


@pytest.mark.frameworks
@needs("mlflow")
def test_scalars_are_sent_while_training(tmp_path: Path, paceline: CommandLine) -> None:
    store = {
        "MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    words = paceline.training("runs/a", "steps=6", "log.tracker=mlflow", procs=1)
    result = paceline(*words, **store)
    assert result.returncode == 0, result.stderr
    number = json.loads((paceline.cwd / "runs/a/trackers.json").read_text())["mlflow"]
    (kept,) = (tmp_path / "store").glob(f"*/{number}")
    points = [line.split() for line in (kept / "metrics/loss").read_text().splitlines()]
    assert [int(step) for _, _, step in points] == [1, 2, 3, 4, 5, 6]
    assert [float(loss) for _, loss, _ in points] == pytest.approx(paceline.losses("runs/a"))


def test_a_tracker_that_fails_is_said_once_and_training_ends_well(paceline: CommandLine) -> None:
    hidden = paceline.cwd / "hidden"
    hidden.mkdir()
    (hidden / "wandb.py").write_text("raise RuntimeError('no such service')\n")
    words = paceline.training("runs/a", "steps=4", "log.tracker=wandb", procs=1)
    path = os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH")]))
    result = paceline(*words, PYTHONPATH=path)
    assert result.returncode == 0, result.stderr
    assert (result.stdout + result.stderr).count("no such service") == 1
    assert len(paceline.losses("runs/a")) == 4


def test_a_tracker_that_is_missing_or_unknown_is_named(
    tmp_path: Path, paceline: CommandLine
) -> None:
    run = plateaued(tmp_path / "a").path
    unknown = paceline("report", str(run), "--to", "nobody")
    assert unknown.returncode == 2 and "wandb, trackio, mlflow" in unknown.stderr
    (paceline.cwd / "trackio.py").write_text("raise ImportError('not here')\n")
    missing = paceline("report", str(run), "--to", "trackio", PYTHONPATH=str(paceline.cwd))
    assert missing.returncode == 2 and "pip install trackio" in missing.stderr
