"""The batch script for Slurm."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.cli import parse
from paceline.errors import UserError
from paceline.launch.batch.sbatch import SlurmJob, array_numbers, batch_script, gpus_in

TRAIN = ("paceline", "train", "cifar10-tiny", "steps=10", "--run", "/data/run a")
JOB = SlurmJob("cifar10-tiny", TRAIN, "/data/run a", 2, 1, "1:00:00", ("partition=gpu",))


def written(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    arguments = parse(["launch", "slurm", *words])
    assert arguments.call(arguments) == 0
    return capsys.readouterr().out


def check_shell(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_the_script_is_valid_shell_and_asks_for_what_the_run_needs() -> None:
    text = batch_script(JOB)
    check_shell(text)
    for line in ("--nodes=2", "--ntasks-per-node=1", "--requeue", "--partition=gpu"):
        assert f"#SBATCH {line}\n" in text
    assert "paceline train cifar10-tiny steps=10 --run '/data/run a'" in text
    assert "# end early:  scancel --name=paceline-cifar10-tiny" in text


def test_a_world_that_the_batch_is_too_small_for_is_refused() -> None:
    arguments = parse(["launch", "slurm", "cifar10-tiny", "--hosts", "4", "--procs", "8"])
    with pytest.raises(UserError, match="too few for 32 processes"):
        arguments.call(arguments)


def test_an_option_cannot_smuggle_in_a_line() -> None:
    odd = replace(JOB, options=("partition=x\nrm -rf /",))
    with pytest.raises(UserError, match="not an option of sbatch"):
        batch_script(odd)


def test_a_script_of_the_users_has_one_task_per_host_which_starts_its_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--hosts", "2", "--procs", "4", "--run", "/data/a")
    text = written(capsys, *words, "--", "my train.py", "--lr", "0.1")
    check_shell(text)
    assert "#SBATCH --ntasks-per-node=1\n" in text
    assert f"#SBATCH --chdir={Path.cwd()}\n" in text
    assert "run --run /data/a --procs 4 'my train.py' --lr 0.1 &" in text
    assert "SBATCH --gpus-per-node=4\n" in text
    assert "must itself go on from what it has saved" in text
    assert ".slurm-failed" not in text, "a failure of a script is not tried again unasked"


def test_an_array_has_a_run_per_number_and_a_task_puts_only_itself_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = written(capsys, "cifar10-tiny", "seed=%a", "--array", "1-4%2", "--run", "/data/it's")
    check_shell(text)
    assert "#SBATCH --array=1-4%2\n" in text
    assert "#SBATCH --output=/data/it's-%a/slurm-%j.log\n" in text
    number = '"$SLURM_ARRAY_TASK_ID"'
    assert f"cifar10-tiny seed={number} --run '/data/it'\"'\"'s-'{number} &" in text
    variables = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    lines = [line for line in text.splitlines() if line.startswith("job=")]
    for given, expected in ((variables, "7_3"), ({"SLURM_JOB_ID": "7"}, "7")):
        script = "\n".join([*lines, 'echo "$job"'])
        said = subprocess.check_output(["sh", "-c", script], env=given, text=True)
        assert said.strip() == expected


@pytest.mark.parametrize(
    ("array", "numbers"), [("1-4", [1, 2, 3, 4]), ("0-6:3,9%2", [0, 3, 6, 9]), ("5", [5])]
)
def test_numbers_of_an_array_are_slurms(array: str, numbers: list[int]) -> None:
    assert array_numbers(array) == numbers


@pytest.mark.parametrize("array", ["", "a", "1-", "1--4", "1;reboot", "1-4%x"])
def test_an_array_that_names_no_tasks_is_refused(array: str) -> None:
    with pytest.raises(UserError, match="names no tasks"):
        array_numbers(array)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("cifar10-tiny", "seed=%a"), "stands for a number of an array"),
        (("cifar10-tiny", "--spot"), "a matter of the partition"),
        ((), "a recipe or runs a script"),
    ],
)
def test_what_slurm_could_not_make_sense_of_is_refused(words: tuple[str, ...], what: str) -> None:
    arguments = parse(["launch", "slurm", *words])
    with pytest.raises(UserError, match=what):
        arguments.call(arguments)


def test_gpus_are_named_by_their_kind(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(capsys, "cifar10-tiny", "--type", "a100:2", "--run", "/data/a")
    assert "#SBATCH --gpus-per-node=a100:2\n" in text
    assert "#SBATCH --ntasks-per-node=2\n" in text
    text = written(capsys, "cifar10-tiny", "--type", "icelake", "--run", "/data/a")
    assert "#SBATCH --constraint=icelake\n" in text


GPU_LINE = "SBATCH --gpus-per-node=2\n"
TWO = SlurmJob("cifar10-tiny", TRAIN, "/data/a", 1, 2, devices_per_node=2)


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
    job = replace(TWO, gpus_per_node=gpus_per_node, options=tuple(options), device=device)
    text = batch_script(job)
    assert (f"\n#{GPU_LINE}" in text) == asks


def test_where_slurm_could_not_be_asked_the_script_says_how_to_get_gpus() -> None:
    text = batch_script(TWO)
    assert f"or the run trains on CPUs:\n##{GPU_LINE}" in text
    assert "\n#SBATCH" not in text.partition("##SBATCH")[2], "nothing after it is lost"


def test_more_processes_than_gpus_on_a_node_are_refused() -> None:
    with pytest.raises(UserError, match="the nodes have 1 GPUs, too few for 2 processes"):
        batch_script(replace(TWO, gpus_per_node=1))
    batch_script(replace(TWO, gpus_per_node=1, device="cpu"))


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
