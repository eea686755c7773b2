"""Paceline from Python: what a script or a notebook asks of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from tests.conftest import CommandLine
from tests.own_tasks import write_project


def run_script(text: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_it_brings_neither_torch_nor_pydantic(tmp_path: Path) -> None:
    """Nor anything else that takes time: 0.1 s is what a notebook may wait."""
    script = (
        "import sys, paceline\n"
        "print(sorted({'torch', 'pydantic', 'numpy', 'yaml', 'rich'} & set(sys.modules)))\n"
        "paceline.SampleTask, paceline.Task, paceline.Settings, paceline.setting, paceline.Scores\n"
        "paceline.open, paceline.train, paceline.compare\n"
        "print('torch' in sys.modules)"
    )
    assert run_script(script, tmp_path) == "[]\nFalse\n"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
        assert name in dir(paceline)
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        paceline.trane  # noqa: B018


def test_a_run_is_trained_opened_and_read(tmp_path: Path) -> None:
    write_project(tmp_path)
    script = """
import paceline
run = paceline.train("blobs.yaml", run="runs/a", steps=6, procs=2, batch={"global": 16, "micro": 8})
print(run)
same = paceline.open("runs/a")
curves = same.curves()
print(len(curves["loss"]), sorted(same.scores), same.checkpoint().name)
print(same.answers["data"].sentence)
import torch
network = same.model("newest")
print(network(torch.zeros(1, 2)).shape, network.training)
print(same.evaluate(which="newest").values == same.scores["validation"])
try:
    paceline.train("blobs.yaml", run="runs/b", stepps=6)
except paceline.UserError as error:
    print(error)
"""
    lines = run_script(script, tmp_path).splitlines()
    assert lines[0] == "Run('runs/a'): finished, step 6 of 6"
    assert lines[1] == "6 ['train', 'validation'] step-0000006"
    assert lines[2].startswith("300 samples for training")
    assert lines[3] == "torch.Size([1, 3]) False"
    assert lines[4] == "True"
    assert "did you mean 'steps'?" in lines[6]


def test_a_report_is_text_here_and_a_page_in_a_notebook(finished_run: Path) -> None:
    run = paceline.open(finished_run)
    view = run.report()
    assert "finished at step 12 of 12" in str(view)
    assert view._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')
    compared = paceline.compare(run, finished_run)
    assert "Worth it" in str(compared) and "images/s" in str(compared)
    with pytest.raises(paceline.UserError, match="one run cannot be compared"):
        paceline.compare(run)
    with pytest.raises(paceline.UserError, match="is not a run directory"):
        paceline.open(finished_run.parent)


def test_a_report_is_saved_as_its_ending_says(finished_run: Path, tmp_path: Path) -> None:
    view = paceline.open(finished_run).report()
    assert view.save(tmp_path / "a.html").read_text(encoding="utf-8") == view.html()
    assert view.save(tmp_path / "a.txt").read_text(encoding="utf-8") == view.text()


def test_a_task_written_in_the_script_itself_is_refused(tmp_path: Path) -> None:
    script = """
import paceline
class Mine(paceline.SampleTask): ...
try:
    paceline.train(Mine)
except paceline.UserError as error:
    print(error)
"""
    assert "cannot import it" in run_script(script, tmp_path)


def test_the_shell_sees_what_python_trained(tmp_path: Path) -> None:
    write_project(tmp_path)
    script = (
        "import paceline, blobs.task\n"
        "paceline.train(blobs.task.Blobs, steps=3, batch={'global': 16, 'micro': 8})"
    )
    run_script(script, tmp_path)
    user = CommandLine(tmp_path, tmp_path)
    assert len(user.losses("runs/blobs")) == 1
    assert "finished" in user("runs").stdout
