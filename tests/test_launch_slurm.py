"""The batch script for Slurm."""

import subprocess
from pathlib import Path

import pytest

from paceline import recipe
from paceline.errors import UserError
from paceline.launch.batch.slurm import SlurmJob, batch_script

JOB = SlurmJob(["cifar10-tiny", "steps=10"], "/data/run a", 2, 1, "1:00:00", ["partition=gpu"])


def test_the_script_is_valid_shell_and_asks_for_what_the_run_needs(tmp_path: Path) -> None:
    text = batch_script(JOB, recipe.load("cifar10-tiny", ["steps=10"]))
    script = tmp_path / "job.sh"
    script.write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)
    for line in ("--nodes=2", "--ntasks-per-node=1", "--requeue", "--partition=gpu"):
        assert f"#SBATCH {line}\n" in text
    assert "paceline train cifar10-tiny steps=10 --run '/data/run a'" in text


def test_a_world_that_the_batch_is_too_small_for_is_refused() -> None:
    many = SlurmJob(["cifar10-tiny"], "/data/a", 4, 8, "1:00:00", [])
    with pytest.raises(UserError, match="too few for 32 processes"):
        batch_script(many, recipe.load("cifar10-tiny"))


def test_an_option_cannot_smuggle_in_a_line() -> None:
    odd = SlurmJob(["cifar10-tiny"], "/data/a", 1, 1, "1:00:00", ["partition=x\nrm -rf /"])
    with pytest.raises(UserError, match="not an option of sbatch"):
        batch_script(odd, recipe.load("cifar10-tiny"))
