"""A task of the user's own, in a directory of its own: trained, resumed, evaluated, looked at."""

import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.conftest import CommandLine
from tests.own_tasks import write_project


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """In the user's project, with a run of two processes, runs/2; no data of ours is near."""
    folder = tmp_path_factory.mktemp("user")
    write_project(folder)
    user = CommandLine(folder, folder / "no-data")
    train(user, "runs/2", "--procs", "2")
    return user


def train(user: CommandLine, run: str, *words: str) -> None:
    result = user("train", "blobs.yaml", "--run", run, *words)
    assert result.returncode == 0, result.stderr


def notes_of(user: CommandLine, run: str) -> list[str]:
    events = read_events(RunDirectory(user.cwd / run).rank_events(0))
    told = [event["text"] for event in events if event["kind"] == "warning"]
    return [text for text in told if "other programs" not in text]  # the machine may be busy


def test_one_and_two_processes_have_the_same_losses_and_scores(user: CommandLine) -> None:
    """Batch norm's running averages agree too, or the scores would not; and nothing depends on
    lambdas, threads or processes."""
    train(user, "runs/1", "--procs", "1")
    assert user.losses("runs/2") == pytest.approx(user.losses("runs/1"), rel=1e-5)
    one, two = (user.table(f"runs/{procs}")[-1] for procs in (1, 2))
    for name in ("validation_top1", "validation_loss", "train_loss"):
        assert float(two[name]) == pytest.approx(float(one[name]), rel=1e-4), name


def test_killed_and_resumed_it_ends_bit_for_bit_the_same_and_a_change_of_code_is_noted(
    user: CommandLine, tmp_path: Path
) -> None:
    whole = user.weights("runs/2"), user.table("runs/2")[-1]["loss"]
    assert notes_of(user, "runs/2") == []
    write_project(tmp_path)
    user = CommandLine(tmp_path, tmp_path)
    process = user.start("train", "blobs.yaml", "--run", "runs/cut", "--procs", "2")
    while not list((user.cwd / "runs/cut/checkpoints").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    with (user.cwd / "blobs/task.py").open("a", encoding="utf-8") as file:
        file.write("# a remark\n")
    train(user, "runs/cut", "--procs", "2")
    assert (user.weights("runs/cut"), user.table("runs/cut")[-1]["loss"]) == whole
    changed = "the code of your task has changed since the last attempt: blobs/task.py"
    assert changed in notes_of(user, "runs/cut")
    assert changed in user("report", "runs/cut").stdout


def test_every_verb_works_on_it(user: CommandLine) -> None:
    shown = user("recipes", "show", "blobs.yaml", "width=5")
    assert shown.returncode == 0, shown.stderr
    assert "width: 5" in shown.stdout and "# size of the hidden layer" in shown.stdout
    assert "(43)" in shown.stdout  # parameters
    elsewhere = CommandLine(user.cwd / "blobs", user.data)  # the code is found where it was
    evaluated = elsewhere("evaluate", "../runs/2", "--json")
    assert json.loads(evaluated.stdout)["signature"] == "validation:30 samples"
    report = user("report", "runs/2").stdout
    assert "blobs.task:Blobs" in report and "points/s" in report
    assert "300 samples for training (30 validation besides)" in report
    told = json.loads(user("report", "runs/2", "--json", "-").stdout)
    assert sum(told["phase_seconds"].values()) == pytest.approx(told["wall_seconds"], rel=0.02)
    assert "validation_top1" in user("log", "runs/2").stdout
    assert "blobs.task" in user("watch", "runs/2", "--once").stdout
    script = user("launch", "slurm", "blobs.yaml", "--nodes", "2").stdout
    assert f"#SBATCH --chdir={user.cwd}" in script
    other = user("train", "blobs.yaml", "width=4", "--run", "runs/2")
    assert other.returncode == 2
    assert "width: 8 -> 4" in other.stderr  # a fixed setting of the user's


def test_processes_with_different_code_do_not_train_together(tmp_path: Path) -> None:
    """Started by hand, where no doctor looks: each in a directory of its own."""
    users = [CommandLine(tmp_path / name, tmp_path) for name in ("here", "there")]
    write_project(users[0].cwd)
    write_project(users[1].cwd, ("0.6", "0.7"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = ["train", "blobs.yaml", "--run", str(tmp_path / "run")]
    places = [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda user, place: user(*words, **place), users, places))
    assert [result.returncode for result in ended] == [2, 2], [r.stderr for r in ended]
    assert "the code of your task on" in ended[0].stderr
    assert "blobs/task.py" in ended[0].stderr


def test_new_writes_a_task_that_trains_at_once(tmp_path: Path) -> None:
    user = CommandLine(tmp_path, tmp_path)
    made = user("new", ".")
    assert made.returncode == 0, made.stderr
    recipe = next(tmp_path.glob("*.yaml")).name
    trained = user("train", recipe, "--run", "runs/a", "steps=30", "evaluate.every_steps=15")
    assert trained.returncode == 0, trained.stderr
    assert "top1" in user("evaluate", "runs/a").stdout
    assert "finished at step 30 of 30" in user("report", "runs/a").stdout
    again = user("new", ".")
    assert again.returncode == 2
    assert "task.py is there already" in again.stderr
