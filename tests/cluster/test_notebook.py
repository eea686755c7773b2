"""A notebook as a student writes it, executed by a real kernel that is killed on the way."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from paceline.record.directory import is_being_trained
from paceline.record.schema import RunDirectory
from tests.own_tasks import write_project

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CELLS = [
    "import sys, paceline\nprint('torch' in sys.modules)",
    "run = paceline.train('blobs.yaml', run='runs/a', steps=40, procs=2)\nrun",
    "run.report()",
    "print(run.report())",
    "curves = run.curves()\nprint(len(curves['loss']), curves['loss'][39] < curves['loss'][0])",
    "print(run.scores['validation'])\nprint(run.checkpoint('best').name, run.model())",
    "print(run.answers['duration'].sentence)",
    "other = paceline.train('blobs.yaml', run='runs/b', steps=40)\npaceline.compare(run, other)",
    "class Mine(paceline.SampleTask): ...\ntry:\n    paceline.train(Mine)\n"
    "except paceline.UserError as error:\n    print(error)",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path)
    return tmp_path


def client_of(cells: list[str], project: Path) -> NotebookClient:
    made: Any = nbformat.v4
    book = made.new_notebook(cells=[made.new_code_cell(text) for text in cells])
    return NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(project)}}
    )


def keep(client: NotebookClient) -> None:
    """Where PACELINE_KEEP_NOTEBOOK names a file: to look at what was shown."""
    wanted = os.environ.get("PACELINE_KEEP_NOTEBOOK")
    if wanted:
        Path(wanted).write_text(json.dumps(client.nb), encoding="utf-8")


def outputs(client: NotebookClient, number: int, kind: str) -> str:
    """What a cell showed, as this kind of data."""
    found: list[Any] = client.nb.cells[number].outputs
    texts = [output.get("text", "") for output in found if kind == "text"]
    return "".join([*texts, *(output.get("data", {}).get(kind, "") for output in found)])


def test_a_notebook_trains_shows_the_report_and_compares(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kernel = client_of(CELLS, project)
    kernel.execute()
    keep(kernel)
    assert outputs(kernel, 0, "text") == "False\n"
    live = outputs(kernel, 1, "text/html")
    assert "step 40/40" in live and "points/s" in live  # one line, in place of all before it
    assert "validation: top1" in live
    assert "finished, step 40 of 40" in outputs(kernel, 1, "text/plain")
    page = outputs(kernel, 2, "text/html")
    assert page.startswith("<iframe srcdoc=") and "Where the time went" in page
    assert "blobs.task:Blobs, finished at step 40 of 40" in outputs(kernel, 3, "text")
    assert outputs(kernel, 4, "text") == "40 True\n"
    assert "'top1'" in outputs(kernel, 5, "text") and "BatchNorm1d" in outputs(kernel, 5, "text")
    assert ": training " in outputs(kernel, 6, "text")
    assert "runs/a against runs/b" in outputs(kernel, 7, "text/html")
    assert "cannot import it" in outputs(kernel, 8, "text")


def test_a_run_goes_on_when_the_kernel_is_killed_and_is_found_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PACELINE_PRACTICE", "compute=0.2")
    cell = ["import paceline\npaceline.train('blobs.yaml', run='runs/a', steps=40)"]
    client = client_of(cell, project)
    run = RunDirectory(project / "runs/a")
    threading.Thread(target=kill_kernel_when_training, args=(run,), daemon=True).start()
    with pytest.raises(DeadKernelError):
        client.execute()
    assert is_being_trained(run), "the run ended with the kernel"
    again = ["import paceline\nrun = paceline.open('runs/a')\nprint(run.state)", "run.wait()"]
    later = client_of(again, project)
    later.execute()
    assert outputs(later, 0, "text") == "training\n"
    assert "finished, step 40 of 40" in outputs(later, 1, "text/plain")


def kill_kernel_when_training(run: RunDirectory) -> None:
    """The kernel, and nothing of its family, once its first process records."""
    while not run.rank_events(0).exists():
        time.sleep(0.05)
    for process in psutil.Process().children(recursive=True):
        if "ipykernel_launcher" in " ".join(process.cmdline()):
            process.kill()
