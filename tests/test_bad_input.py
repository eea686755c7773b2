"""Every mistake gets one clear message and exit code 2, and loses nothing."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10 import standin as drawing
from tests.conftest import FINISHED, CommandLine, Result


def assert_refused(result: Result, *words: str) -> None:
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert len(re.findall("^error:", result.stderr, re.MULTILINE)) == 1, result.stderr
    assert "fix:" in result.stderr
    for word in words:
        assert word in result.stderr


def test_an_unknown_verb(paceline: CommandLine) -> None:
    assert_refused(paceline("trian"), "trian")


def test_an_unknown_recipe(paceline: CommandLine) -> None:
    assert_refused(paceline("train", "cifar10-resnet4"), "did you mean 'cifar10-resnet44'?")


def test_an_unknown_setting_and_a_wrong_type_are_both_named(paceline: CommandLine) -> None:
    result = paceline("train", "cifar10-tiny", "optimizer.momentun=0.5", "steps=many")
    assert_refused(result, "2 mistakes", "did you mean 'optimizer.momentum'?", "'many'")


def test_missing_data(paceline: CommandLine) -> None:
    result = paceline("train", "cifar10-tiny", "data=./nowhere")
    assert_refused(result, "nowhere", "paceline data cifar10")
    assert not (paceline.cwd / "runs").exists()


def test_an_unwritable_run_directory(paceline: CommandLine) -> None:
    (paceline.cwd / "file").write_text("")
    result = paceline.train("file/run", "steps=1")
    assert_refused(result, "cannot write the run directory file/run")


def test_a_truncated_archive(paceline: CommandLine) -> None:
    archive = paceline.cwd / "cifar-10-binary.tar.gz"
    drawing.write_archive(archive, num_train=100, num_test=20)
    archive.write_bytes(archive.read_bytes()[:-2000])
    result = paceline("data", "cifar10", "--from", str(archive), "--to", "out")
    assert_refused(result, "cifar-10-binary.tar.gz")
    assert not (paceline.cwd / "out").exists()


def test_a_run_of_another_recipe_is_not_continued(
    paceline: CommandLine, finished_run: Path
) -> None:
    paceline.copy(finished_run, "runs/a")
    before = paceline.weights("runs/a")
    result = paceline.train("runs/a", "steps=20", "model.depth=14", "seed=5")
    assert_refused(result, "model.depth: 8 -> 14", "seed: 1 -> 5")
    assert paceline.weights("runs/a") == before


def test_a_run_directory_of_another_workload_is_refused(paceline: CommandLine) -> None:
    run = paceline.cwd / "runs/a"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text("workload: nmt\nsteps: 5\n")
    refused = paceline.train("runs/a", "steps=1")
    assert_refused(refused, "another task: it trains nmt, and this recipe trains cifar10")
    assert (run / "recipe.yaml").read_text() == "workload: nmt\nsteps: 5\n"


def test_a_run_that_is_being_trained_is_not_started_twice(paceline: CommandLine) -> None:
    process = paceline.start(*paceline.training("runs/a", "steps=100000"))
    try:
        while not (paceline.cwd / "runs/a/recipe.yaml").exists():
            assert process.poll() is None
        result = paceline.train("runs/a", "steps=1")
        assert_refused(result, "is being trained already", str(process.pid))
    finally:
        process.kill()
        process.communicate()


def test_other_data_than_the_run_began_with(paceline: CommandLine, finished_run: Path) -> None:
    archive = paceline.cwd / "other.tar.gz"
    drawing.write_archive(archive, num_train=500, num_test=50, seed=9)
    cifar10.prepare(str(archive), paceline.cwd / "other", lambda _text: None)
    paceline.copy(finished_run, "runs/a")
    result = paceline.train("runs/a", "steps=20", "data=./other")
    assert_refused(result, "was trained on other data")


def test_flipped_bytes_in_a_checkpoint_are_reported_and_the_one_before_is_used(
    paceline: CommandLine, finished_run: Path
) -> None:
    run = paceline.copy(finished_run, "runs/a")
    before = paceline.weights("runs/a")
    flip_a_byte(run / "checkpoints/step-0000012/weights.safetensors")
    assert_refused(paceline("checkpoint", "runs/a", "--checkpoint", "12"), "sha256 differs")
    assert_refused(paceline("evaluate", "runs/a", "--checkpoint", "12"), "sha256 differs")
    again = paceline.train("runs/a", *FINISHED)
    assert again.returncode == 0
    assert "damaged checkpoint" in again.stderr
    assert "step-0000012" in again.stderr
    assert paceline.weights("runs/a") == before


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_a_loss_that_is_not_finite_stops_the_run_and_overwrites_nothing(
    paceline: CommandLine, finished_run: Path
) -> None:
    settings = ["checkpoint.every_steps=2", "evaluate.every_steps=null", "guard.diverged_factor=0"]
    paceline.copy(finished_run, "runs/a")
    before = paceline.weights("runs/a")
    result = paceline.train("runs/a", "steps=50", "schedule.rate=1e30", *settings)
    assert_refused(result, "the loss is", "with a learning rate of", "step-0000012")
    assert paceline.weights("runs/a") == before


def test_a_loss_that_diverges_stops_the_run(paceline: CommandLine) -> None:
    result = paceline.train(
        "runs/a",
        "steps=400",
        "schedule.policy=fixed",
        "schedule.rate=30",
        "evaluate.every_steps=null",
        "guard.diverged_factor=1.5",
    )
    assert_refused(result, "the loss", "there is no checkpoint yet")


def test_wrong_number_of_processes(paceline: CommandLine) -> None:
    assert_refused(paceline("train", "cifar10-tiny", "--procs", "0"), "--procs")


def test_readers_given_something_that_is_not_a_run(paceline: CommandLine) -> None:
    for verb in ("report", "log", "checkpoint", "evaluate"):
        assert_refused(paceline(verb, "nowhere"), "nowhere is not a run directory")


def test_an_unknown_split_and_an_unknown_checkpoint(
    paceline: CommandLine, finished_run: Path
) -> None:
    run = str(finished_run)
    assert_refused(paceline("evaluate", run, "--split", "tset"), "tset")
    assert_refused(paceline("evaluate", run, "--checkpoint", "77"), "no checkpoint '77'")


@pytest.mark.cluster
def test_a_full_disk_stops_no_run_and_harms_no_checkpoint(paceline: CommandLine) -> None:
    """Needs root: a file system of its own that is really full."""
    disk = paceline.cwd / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", str(disk)], check=True)
    try:
        settings = ["model.depth=20", "evaluate.every_steps=null", "checkpoint.every_steps=2"]
        # One checkpoint is 2.2 MB: the second finds no room while the first is kept.
        result = paceline.train("disk/run", "steps=6", *settings)
        assert_refused(result, "no space left", "earlier ones are intact")
        assert "step 6/6" in result.stderr, "the run went on to its end"
        (whole,) = (disk / "run/checkpoints").glob("step-*")
        assert whole.name == "step-0000002"
        assert paceline("checkpoint", "disk/run").returncode == 0
        subprocess.run(["mount", "-o", "remount,size=50M", str(disk)], check=True)
        again = paceline.train("disk/run", "steps=6", *settings)
        assert again.returncode == 0, again.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_save_that_fails_leaves_the_run_going_and_the_earlier_checkpoint_whole(
    paceline: CommandLine, finished_run: Path
) -> None:
    """The same without root: a limit on the size of files, as `ulimit -f` sets it."""
    settings = ["evaluate.every_steps=null", "checkpoint.every_steps=2", "schedule.policy=fixed"]
    run = paceline.copy(finished_run, "runs/a")
    before = paceline.weights("runs/a")
    words = paceline.command(*paceline.training("runs/a", "steps=16", *settings))
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *words]
    result = subprocess.run(
        limited,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=paceline.cwd,
        env=paceline.environment(),
    )
    assert_refused(result, "could not be saved", "earlier ones are intact")
    assert paceline.weights("runs/a") == before
    manifest = json.loads((run / "checkpoints/step-0000012/manifest.json").read_text())
    assert manifest["step"] == 12
    assert not list((run / "checkpoints").glob(".*")), "leftovers are removed"
