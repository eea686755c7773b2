"""A task of the user's own on hosts that have other files than the launcher's machine."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import environment, weights
from tests.own_tasks import write_project

pytestmark = pytest.mark.cluster


@pytest.fixture
def project(lab: PracticeLab) -> Iterator[Path]:
    """Under the lab's `local`, which hosts have as well, but with their own files in it."""
    folder = lab.local / "project"
    seeded = "rng = np.random.default_rng(len(data.read_bytes()))"
    change = ("rng = np.random.default_rng(0)", seeded)
    write_project(folder, change, recipe="data: points.txt\n")
    (folder / "points.txt").write_text("seven", encoding="ascii")
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def paceline(project: Path, *words: str) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def make_environment(lab: PracticeLab, name: str) -> None:
    """What `hosts push` would install, without the internet: this machine's own libraries."""
    made = lab.ssh(name, sys.executable, "-m", "venv", "--without-pip", f"{lab.local}/sent/.venv")
    assert made.code == 0, made.stderr
    libraries = lab.local_of(name).joinpath("sent/.venv/lib").glob("python*/site-packages")
    line = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
    (next(libraries) / "borrowed.pth").write_text(line, encoding="ascii")


def test_it_is_sent_compared_and_trained_on_two_hosts(
    lab: PracticeLab, project: Path, tmp_path: Path
) -> None:
    python = {"python": f"{lab.local}/sent/.venv/bin/python"}
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2, node0=python, node1=python)
    for name in ("node0", "node1"):
        make_environment(lab, name)
    run = lab.shared / f"own-{os.getpid()}"
    train = ["train", "blobs.yaml", "--hosts", str(hosts), "--run", str(run), "device=cpu"]
    before = paceline(project, *train)
    assert before.returncode == 2
    assert "the code of your task is not there" in before.stderr
    sent = paceline(
        project, "hosts", "push", "--hosts", str(hosts), "--no-env", "--to", f"{lab.local}/sent"
    )
    assert sent.returncode == 0, sent.stderr
    assert "your project 'project', 4 files" in sent.stderr
    checked = paceline(project, "hosts", "check", "--hosts", str(hosts), "--quick", "blobs.yaml")
    assert f"{lab.local}/sent/projects/project, the same code" in checked.stdout, checked.stdout
    trained = paceline(project, *train)
    assert trained.returncode == 0, trained.stderr
    alone = tmp_path / "alone"
    here = paceline(
        project, "train", "blobs.yaml", "--procs", "2", "--run", str(alone), "device=cpu"
    )
    assert here.returncode == 0, here.stderr
    assert weights(run) == weights(alone)
    with (project / "blobs/task.py").open("a", encoding="utf-8") as file:
        file.write("# a remark\n")
    other = paceline(project, *train, "steps=13")
    assert other.returncode == 2
    assert "other code than here (blobs/task.py)" in other.stderr
    assert "paceline hosts push" in other.stderr
