"""The batch script for Slurm."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import recipe
from paceline.errors import UserError
from paceline.launch.batch.slurm import SlurmJob, batch_script, gpus_in

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


GPU_LINE = "SBATCH --gpus-per-node=2\n"
TWO = SlurmJob(["cifar10-tiny"], "/data/a", 1, 2, "1:00:00", [])


@pytest.mark.parametrize(
    ("device", "gpus_per_node", "options", "asks"),
    [
        ("auto", 4, [], True),
        ("auto", 0, [], False),
        ("auto", None, [], False),
        ("cuda", None, [], True),
        ("cpu", 4, [], False),
        ("auto", 4, ["gpus-per-task=1"], False),
        ("cuda", 4, ["gres=gpu:a100:2"], False),
    ],
)
def test_it_asks_for_gpus_where_there_are_some_and_the_recipe_may_use_them(
    device: str, gpus_per_node: int | None, options: list[str], asks: bool
) -> None:
    job = replace(TWO, gpus_per_node=gpus_per_node, options=options)
    text = batch_script(job, recipe.load("cifar10-tiny", [f"device={device}"]))
    assert (f"\n#{GPU_LINE}" in text) == asks


def test_where_slurm_could_not_be_asked_the_script_says_how_to_get_gpus() -> None:
    text = batch_script(TWO, recipe.load("cifar10-tiny"))
    assert f"or the run trains on CPUs:\n##{GPU_LINE}" in text
    assert "\n#SBATCH" not in text.partition("##SBATCH")[2], "nothing after it is lost"


def test_more_processes_than_gpus_on_a_node_are_refused() -> None:
    with pytest.raises(UserError, match="the nodes have 1 GPUs, too few for 2 processes"):
        batch_script(replace(TWO, gpus_per_node=1), recipe.load("cifar10-tiny"))
    batch_script(replace(TWO, gpus_per_node=1), recipe.load("cifar10-tiny", ["device=cpu"]))


@pytest.mark.parametrize(
    ("sinfo", "of_default", "num_gpus"),
    [
        ("all*|(null)\n", True, 0),
        ("cpu*|(null)\ngpu|gpu:a100:4(S:0-1)\n", True, 0),
        ("gpu|gpu:a100:4(S:0-1)\n", False, 4),
        ("gpu*|gpu:2\ngpu*|gpu:a100:1,gpu:v100:2,mps:400\n", True, 3),
        ("gpu*|gpu,nvme:1\n", True, 1),
        ("", True, None),
    ],
)
def test_what_slurm_says_of_its_nodes_is_understood(
    sinfo: str, of_default: bool, num_gpus: int | None
) -> None:
    assert gpus_in(sinfo, of_default) == num_gpus
