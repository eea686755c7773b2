"""What is sent to hosts."""

import io
import subprocess
import tarfile
from pathlib import Path

from paceline.hosts.push import (
    Parcel,
    find_own_project,
    installed_extras,
    installed_versions,
    pack,
    pack_project,
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
