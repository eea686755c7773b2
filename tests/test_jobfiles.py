"""Job files for engines that create machines: what stands in them, and handing them in.

Whether the engines take them is tested against their own schemas, in tests/engines.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.cli import parse
from paceline.errors import UserError
from paceline.jobfiles.request import Machine, job_name, read_machine
from tests.on_a_terminal import Terminal

POD = ("--image", "example/paceline:1")
JOBS = {
    "sky": ("--type", "T4:2", "--storage", "s3://bucket"),
    "dstack": ("--type", "T4:2", "--storage", "volume"),
    "kubernetes": ("--type", "T4:2", "--storage", "claim", *POD),
    "vertex": ("--type", "n1-standard-8+NVIDIA_TESLA_T4:2", "--storage", "gs://bucket", *POD),
}


def written(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    arguments = parse(["launch", *words])
    assert arguments.call(arguments) == 0
    return capsys.readouterr().out


def load(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("kind", JOBS)
def test_every_host_runs_the_same_line_and_the_run_is_on_the_storage(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(capsys, kind, "cifar10-tiny", "steps=9", "--hosts", "2", *JOBS[kind])
    place = "/gcs/bucket" if kind == "vertex" else "/mnt/paceline"
    for word in ("paceline", "train", "cifar10-tiny", "steps=9", f"{place}/runs/cifar10-tiny"):
        assert word in text
    assert any(line.startswith("#") and "hand in" in line for line in text.splitlines())
    assert any(
        line.startswith("#") and ("give back" in line or "end early" in line)
        for line in text.splitlines()
    )


@pytest.mark.parametrize("kind", JOBS)
def test_nothing_is_opened_to_the_world_and_no_secret_is_written(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "very-secret-value")
    text = written(capsys, kind, "cifar10-tiny", "--hosts", "2", "--spot", *JOBS[kind])
    assert "very-secret" not in text
    assert "0.0.0.0" not in text and "ports" not in text  # noqa: S104


@pytest.mark.parametrize("kind", JOBS)
def test_spot_machines_without_storage_that_stays_are_refused(kind: str) -> None:
    words = [word for word in JOBS[kind] if "bucket" not in word]
    words = [w for w in words if w not in ("--storage", "volume", "claim")]
    arguments = parse(["launch", kind, "cifar10-tiny", "--spot", *words])
    with pytest.raises(UserError, match="the run directory would go with them") as caught:
        arguments.call(arguments)
    assert "--storage" in caught.value.fix


def test_a_run_that_will_not_be_kept_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parse(["launch", "sky", "cifar10-tiny", "--type", "T4:1"])
    assert arguments.call(arguments) == 0
    assert "ends with them" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "option"), [("sky", "--hours"), ("kubernetes", "--region")])
def test_an_option_that_the_engine_has_nothing_for_is_not_passed_over(
    kind: str, option: str
) -> None:
    arguments = parse(["launch", kind, "cifar10-tiny", *JOBS[kind], option, "3"])
    with pytest.raises(UserError) as caught:
        arguments.call(arguments)
    assert f"leave {option} out" in caught.value.fix


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "long"])
def test_a_time_that_is_none_is_refused(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["launch", "dstack", "cifar10-tiny", f"--hours={hours}"])
    assert "is not a number of hours above 0" in capsys.readouterr().err


def test_a_script_of_the_users_is_run_observed_and_sent_along(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    text = written(capsys, "sky", "--type", "T4:1", "--", "my/train.py", "--lr", "0.1", "steps=3")
    (task,) = load(text)
    assert task["name"] == "train"
    assert task["workdir"] == "."
    assert task["run"].splitlines()[-1].split()[:2] == ["paceline", "run"]
    assert task["run"].rstrip().endswith("my/train.py --lr 0.1 steps=3")


def test_a_world_that_the_batch_is_too_small_for_is_refused_before_machines_are_paid_for() -> None:
    arguments = parse(["launch", "sky", "cifar10-tiny", "--hosts", "4", "--type", "A100:8"])
    with pytest.raises(UserError, match="too few for 32 processes"):
        arguments.call(arguments)


@pytest.mark.parametrize("what", [("cifar10-tiny",), ("--", "train.py")])
def test_parameter_servers_are_a_pool_of_their_own_without_accelerators(
    what: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("vertex", *JOBS["vertex"], "--parameter-servers", "2", "--hosts", "2", "--procs", "1")
    (spec,) = load(written(capsys, *words, *what))
    pools = spec["workerPoolSpecs"]
    assert [p["replicaCount"] for p in pools] == ["1", "1", "2"]
    assert "acceleratorType" in pools[1]["machineSpec"]
    assert "acceleratorType" not in pools[2]["machineSpec"]
    if what[0] != "--":
        assert "strategy=parameter-server" in pools[2]["containerSpec"]["args"]


def test_a_script_that_is_not_here_or_not_sent_along_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no script"):
        written(capsys, "sky", "--type", "T4:1", "--", "train.py")
    (tmp_path / "train.py").touch()
    with pytest.raises(UserError, match="a path of this machine"):
        written(capsys, "sky", "--type", "T4:1", "--", str(tmp_path / "train.py"))
    arguments = parse(["launch", "kubernetes", *POD, "--", "train.py"])
    assert arguments.call(arguments) == 0
    assert "the image must hold train.py" in capsys.readouterr().err


def test_machines_that_have_no_data_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "sky", "cifar10-tiny", "--type", "T4:1"]
    arguments = parse(words)
    assert arguments.call(arguments) == 0
    assert "--setup 'paceline data cifar10 --from" in capsys.readouterr().err
    arguments = parse([*words, "--setup", "paceline data cifar10 --from stand-in"])
    assert arguments.call(arguments) == 0
    assert "need the data" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("g4dn.2xlarge", Machine("g4dn.2xlarge")),
        ("A100:8", Machine(None, "A100", 8)),
        ("A10G", Machine(None, "A10G", 1)),
        ("n1-standard-8+NVIDIA_TESLA_T4:2", Machine("n1-standard-8", "NVIDIA_TESLA_T4", 2)),
    ],
)
def test_machines_are_named_by_type_by_accelerator_or_both(text: str, machine: Machine) -> None:
    assert read_machine(text) == machine


@pytest.mark.parametrize("text", ["A100:0", "A100:many", "n1+", ":2", "n1+T4"])
def test_a_type_that_names_no_machine_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="names no machine"):
        read_machine(text)


def test_vertex_gets_accelerators_by_its_own_names(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("vertex", "cifar10-tiny", *POD, "--procs", "1", "--type")
    (spec,) = load(written(capsys, *words, "n1-standard-8+t4:2"))
    assert spec["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
    with pytest.raises(UserError, match="no accelerator A10G"):
        written(capsys, *words, "n1-standard-8+A10G:1")
    with pytest.raises(UserError, match="must know which machines"):
        written(capsys, *words, "T4:1")


def test_a_bucket_is_no_claim_of_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="not the name of a persistent volume claim"):
        written(capsys, "kubernetes", "cifar10-tiny", *POD, "--storage", "s3://bucket")


def test_names_are_what_every_engine_takes() -> None:
    assert job_name("My Recipe_2.yaml") == "my-recipe-2-yaml"
    assert job_name("2024") == "run-2024"


def test_what_an_old_configuration_means_and_lacks_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "config.yaml"
    old.write_text("trainingInput:\n  scaleTier: STANDARD_1\n  hyperparameters: {}\n")
    with pytest.raises(UserError, match="names no container"):
        written(capsys, "import", str(old))
    arguments = parse(["launch", "import", str(old), "--image", "example/train:1"])
    assert arguments.call(arguments) == 0
    said = capsys.readouterr()
    (spec,) = load(said.out)
    assert [pool["replicaCount"] for pool in spec["workerPoolSpecs"]] == ["1", "4", "3"]
    assert "'hyperparameters' has no counterpart" in said.err
    old.write_text("just: something\n")
    with pytest.raises(UserError, match="no configuration of AI Platform"):
        written(capsys, "import", str(old), "--image", "x")


def test_all_mistakes_of_an_old_configuration_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "config.yaml"
    old.write_text(
        "trainingInput:\n  args: --steps 10\n  workerCount: -1\n  scheduling: 3\n"
        "  masterConfig: {acceleratorConfig: {type: NVIDIA_TESLA_T4, count: two}}\n"
    )
    with pytest.raises(UserError) as caught:
        written(capsys, "import", str(old), "--image", "example/train:1")
    for place in ("args: ", "workerCount: ", "scheduling: ", "acceleratorConfig.count: "):
        assert place in caught.value.what
    assert "_Scheduling" not in caught.value.what


SUBMIT = ("kubernetes", "cifar10-tiny", *POD, "--storage", "claim", "--submit")


def on_terminal(folder: Path, path: str) -> Terminal:
    command = [sys.executable, "-m", "paceline.cli", "launch", *SUBMIT]
    return Terminal.start(command, folder, {**os.environ, "PATH": path})


def stand_in_for_kubectl(folder: Path) -> str:
    """It writes down what it was asked, as an engine would act on it."""
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    text = f'#!/bin/sh\n[ "$1" != get ] || exit 1\necho "$@" > {folder}/asked\n'
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("answer", ["y", "n"])
def test_submitting_shows_the_file_asks_and_says_how_to_give_the_machines_back(
    tmp_path: Path, answer: str
) -> None:
    terminal = on_terminal(tmp_path, stand_in_for_kubectl(tmp_path))
    try:
        shown = terminal.wait_for("[y/N]")
        assert "kind: TrainJob" in shown, "before it asks"
        assert not (tmp_path / "asked").exists()
        terminal.type_line(answer)
        if answer == "y":
            terminal.wait_for("kubectl delete -f cifar10-tiny.kubernetes.yaml")
            asked = (tmp_path / "asked").read_text(encoding="utf-8")
            assert asked == "apply -f cifar10-tiny.kubernetes.yaml\n"
        else:
            terminal.wait_for("nothing was handed in")
            assert not (tmp_path / "asked").exists()
    finally:
        terminal.end()


def test_an_engine_that_is_not_installed_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    terminal = on_terminal(tmp_path, str(tmp_path))
    try:
        terminal.wait_for("`kubectl` is not installed here", seconds=30)
        terminal.wait_for("Kubeflow Trainer 2")
    finally:
        terminal.end()


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "job.yaml"
    mine.write_text("mine\n", encoding="utf-8")
    arguments = parse(["launch", "sky", "cifar10-tiny", "--type", "T4:1", "--to", str(mine)])
    with pytest.raises(UserError, match="holds something else"):
        arguments.call(arguments)
    assert mine.read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize(
    ("place", "message"), [("/dev/null/job.yaml", "cannot write"), ("/dev", "is a directory")]
)
def test_a_place_that_cannot_be_written_to_is_told(place: str, message: str) -> None:
    arguments = parse(["launch", "sky", "cifar10-tiny", "--type", "T4:1", "--to", place])
    with pytest.raises(UserError, match=message):
        arguments.call(arguments)
