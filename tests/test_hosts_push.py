"""What is sent to hosts."""

import io
import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.hosts.file import Host
from paceline.hosts.push import (
    Order,
    Parcel,
    find_own_project,
    installed_extras,
    installed_versions,
    pack,
    pack_project,
    push,
)


def names(parcel: Parcel) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(parcel.archive)) as archive:
        return set(archive.getnames())


def project(folder: Path) -> Path:
    (folder / "src").mkdir()
    (folder / ".venv").mkdir()
    (folder / "pyproject.toml").write_text("[project]\n", encoding="ascii")
    (folder / "src/code.py").write_text("", encoding="ascii")
    (folder / ".venv/big").write_text("", encoding="ascii")
    (folder / ".secret").write_text("", encoding="ascii")
    return folder


SENT = {"pyproject.toml", "src/code.py", "constraints-of-sender.txt"}


def test_hidden_files_stay_here(tmp_path: Path) -> None:
    assert names(pack(project(tmp_path))) == SENT


def test_what_git_ignores_stays_here_and_what_is_new_goes(tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / ".gitignore").write_text("runs/\n", encoding="ascii")
    (root / "runs").mkdir()
    (root / "runs/big").write_text("", encoding="ascii")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    assert names(pack(root)) == SENT


def test_another_environment_has_another_stamp(tmp_path: Path) -> None:
    root = project(tmp_path)
    before = pack(root).stamp
    (root / "src/code.py").write_text("new = 1\n", encoding="ascii")
    assert pack(root).stamp == before
    (root / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="ascii")
    assert pack(root).stamp != before


def test_versions_are_those_that_run_here_without_the_builds_own_part() -> None:
    import torch

    versions = installed_versions()
    assert versions["torch"] == str(torch.__version__).partition("+")[0]
    assert {"numpy", "pydantic", "pydantic-core"} <= set(versions)
    assert not {"dev", "bench"} & set(installed_extras())


def own_project(folder: Path) -> Path:
    for name in ("task.py", "blobs.yaml", "runs/a/recipe.yaml", "runs/a/events/rank-00000.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("workload: task:Mine\n", encoding="ascii")
    with (folder / "large.bin").open("wb") as file:
        file.truncate(30_000_000)
    return folder


def test_the_users_project_goes_without_runs_and_large_files(tmp_path: Path) -> None:
    parcel = pack_project(own_project(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(parcel.archive)) as archive:
        assert set(archive.getnames()) == {"task.py", "blobs.yaml"}
    assert parcel.left_out == ("large.bin (30.0 MB)",)


def test_a_directory_is_a_project_if_a_recipe_in_it_names_a_task_there(tmp_path: Path) -> None:
    assert find_own_project(tmp_path) is None
    (tmp_path / "shipped.yaml").write_text("workload: nmt\nsteps: 3\n", encoding="ascii")
    assert find_own_project(tmp_path) is None
    (tmp_path / "own.yaml").write_text("steps: 3\nworkload: a.b:C\n", encoding="ascii")
    assert find_own_project(tmp_path) == tmp_path


# ---- to hosts that are played: a login is a shell here, with a home of its own

SSH = """#!/bin/sh
for word; do last=$word; done
cd "$HOME/hosts" && exec sh -c "$last"
"""
# Makes an environment whose Python keeps what pip was asked to hold to.
PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  pip) cp code/constraints-of-sender.txt installed.txt ;;
esac
"""


def play(folder: Path, name: str, program: str) -> Path:
    path = folder / name
    path.write_text(program, encoding="ascii")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("cards", "torch"),
    [
        ("7.0, 580.95.05", "2.10.0"),
        ("7.5, 580.95.05\n8.6, 580.95.05", None),
        ("8.0, 580.95.05\n7.0, 580.95.05", "2.10.0"),
        ("7.5, 550.54.15", "2.10.0"),
        ("", None),
    ],
)
def test_hosts_get_a_torch_with_kernels_for_all_their_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cards: str, torch: str | None
) -> None:
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    (home / "hosts").mkdir(parents=True)
    play(programs, "ssh", SSH)
    play(programs, "nvidia-smi", f"#!/bin/sh\necho '{cards}'\n" if cards else "#!/bin/sh\nexit 9\n")
    python = play(programs, "python-there", PYTHON)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    source = tmp_path / "source"
    source.mkdir()
    parcel = replace(pack(project(source)), torch="2.13.0")
    said: list[str] = []
    order = Order(folder="there", python=str(python))
    assert push((Host("a", "a", "a"),), order, parcel, said.append) == 0, said
    pinned = (home / "hosts/there/installed.txt").read_text().splitlines()
    assert f"torch=={torch or '2.13.0'}" in pinned
    assert any("instead of 2.13.0" in line for line in said) == (torch is not None)
