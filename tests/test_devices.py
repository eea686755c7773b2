"""How many processes a host starts, and which device is whose. What the driver says is played."""

import os
import shlex
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from paceline import recipe
from paceline.cli import train
from paceline.errors import UserError
from paceline.machine import amd, devices
from paceline.machine.devices import (
    choose_index,
    choose_processes,
    num_visible_devices,
    refuse_shared_device,
)
from paceline.machine.torch_builds import why_on_processor, without_kernels
from paceline.report.own.run import read_run
from paceline.tasks.nmt import demo
from paceline.units import count_of
from paceline.world import choose_device
from tests.conftest import CommandLine

MIG = "\n".join(
    [
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa0)",
        "  MIG 3g.20gb     Device  0: (UUID: MIG-bb0)",
        "  MIG 3g.20gb     Device  1: (UUID: MIG-bb1)",
    ]
)


def cards(count: int) -> str:
    return "\n".join(f"GPU {n}: Tesla T4 (UUID: GPU-{n}a-{n})" for n in range(count))


def play_driver(folder: Path, listed: str) -> str:
    """A PATH on which nvidia-smi lists these devices."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("listed", "variables", "count"),
    [
        (cards(0), {}, 0),
        (cards(1), {}, 1),
        (cards(8), {}, 8),
        (cards(8), {"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        (cards(8), {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (cards(8), {"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        (cards(2), {"CUDA_VISIBLE_DEVICES": "0,5,1"}, 1),  # CUDA stops at what is not there
        (cards(2), {"CUDA_VISIBLE_DEVICES": "GPU-1a"}, 1),
        (cards(2), {"CUDA_VISIBLE_DEVICES": "GPU-"}, 0),  # could be either
        (MIG, {}, 1),
        (MIG, {"CUDA_VISIBLE_DEVICES": "MIG-bb1"}, 1),
        (MIG, {"CUDA_VISIBLE_DEVICES": "MIG-bb0,MIG-bb1"}, 1),
    ],
)
def test_devices_count_as_far_as_a_process_may_use_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    variables: dict[str, str],
    count: int,
) -> None:
    monkeypatch.setenv("PATH", play_driver(tmp_path, listed))
    assert num_visible_devices(variables) == count


@pytest.mark.parametrize(
    ("asked", "device", "num_devices", "count"),
    [
        (None, "auto", 0, 1),
        (None, "auto", 1, 1),
        (None, "auto", 2, 2),
        (None, "auto", 8, 4),  # a step has four micro-batches
        (None, "cpu", 8, 1),
        (3, "cpu", 1, 3),
        (2, "auto", 0, 2),
        (2, "cuda", 8, 2),
    ],
)
def test_a_host_starts_a_process_per_device_that_a_step_can_feed(
    asked: int | None, device: str, num_devices: int, count: int
) -> None:
    assert choose_processes(asked, device, num_devices, lambda _: 4).count == count


def test_a_batch_that_grows_with_the_world_feeds_all_devices() -> None:
    assert choose_processes(None, "auto", 8, lambda count: count) == choose_processes(
        None, "cuda", 8, lambda count: 2 * count
    )


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        (["--procs", "2"], "--procs 1"),
        (
            ["strategy=parameter-server", "--roles", "chief=1,worker=1,server=2"],
            "name fewer workers in --roles",
        ),
    ],
)
def test_more_processes_than_devices_are_refused_before_anything_starts(
    paceline: CommandLine, tmp_path: Path, asked: list[str], remedy: str
) -> None:
    path = play_driver(tmp_path, cards(1))
    command = [*paceline.training("runs/a", "steps=1")[:-2], *asked]
    result = paceline(*command, PATH=path, CUDA_VISIBLE_DEVICES="0")
    assert result.returncode == 2
    assert "2 processes were asked for, and there is 1 CUDA device" in result.stderr
    assert f"{remedy}, or train on the processor: device=cpu" in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


@pytest.mark.parametrize(("num_devices", "num_trainers"), [(0, 2), (1, 1), (2, 2), (8, 4)])
def test_beside_a_parameter_server_a_process_trains_on_each_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_devices: int, num_trainers: int
) -> None:
    """On the processor two; a step of this recipe has four micro-batches."""
    monkeypatch.setenv("PATH", play_driver(tmp_path, cards(num_devices)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    loaded = recipe.load("cifar10-tiny", ["strategy=parameter-server"])
    roles = train._roles_here(Namespace(roles=None, procs=None), loaded)
    assert (len(roles.trainers), len(roles.servers)) == (num_trainers, 1)


@pytest.mark.parametrize(
    ("num_devices", "num_procs", "said"),
    [
        (1, 1, "processes: 1 (one per CUDA device)"),
        (2, 2, "processes: 2 (one per CUDA device)"),
        (8, 4, "processes: 4 (of 8 CUDA devices, because a step has only 4 micro-batches"),
    ],
)
def test_a_host_trains_with_as_many_processes_as_it_says(
    paceline: CommandLine, tmp_path: Path, num_devices: int, num_procs: int, said: str
) -> None:
    """Of its devices torch finds none, whatever is really there: also that is said."""
    command = paceline.training("runs/a", "steps=1", "evaluate.every_steps=null")[:-2]
    names = ",".join(f"GPU-{number}a-{number}" for number in range(num_devices))
    path = play_driver(tmp_path, cards(num_devices))
    result = paceline(*command, PATH=path, CUDA_VISIBLE_DEVICES=names)
    assert result.returncode == 0, result.stderr
    assert said in result.stderr
    assert len(list((paceline.cwd / "runs/a/events").glob("rank-*.jsonl"))) == num_procs
    warning = f"NVIDIA's driver lists {count_of(num_devices, 'device')}, but torch"
    assert warning in result.stderr
    assert any(warning in text for text in read_run(paceline.cwd / "runs/a").warnings)


@pytest.mark.parametrize("num_devices", [0, 1, 2, 8])
def test_the_demonstration_and_the_commands_of_the_readme_run_on_any_number_of_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_devices: int
) -> None:
    monkeypatch.setenv("PATH", play_driver(tmp_path, cards(num_devices)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    called: list[list[str]] = []
    monkeypatch.setattr(demo, "_call", lambda words, _text=None: called.append(words))
    monkeypatch.setattr(demo, "_translate_unseen_sentences", lambda: None)
    demo.main()
    trainings = [words for words in called if words[0] == "train"]
    assert len(trainings) == 1
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    trainings += [
        shlex.split(line, comments=True)[1:]
        for line in text.splitlines()
        if line.startswith("    paceline train ")
    ]
    assert len(trainings) > 2
    for words in trainings:
        asked = int(words[words.index("--procs") + 1]) if "--procs" in words else None
        settings = [word for word in words[2:] if word.startswith("device=")]
        loaded = recipe.load(words[1], settings)
        found = num_visible_devices(dict(os.environ))
        assert found == num_devices
        chosen = choose_processes(asked, loaded.device, found, loaded.batch.num_micro_batches)
        assert chosen.count == (asked or max(1, min(found, loaded.batch.num_micro_batches(found))))


@pytest.mark.parametrize(
    ("built_with", "driver", "reason"),
    [
        (None, "580.65.06", "is built without CUDA"),
        ("13.0", "535.183.01", "needs driver 580 or newer, and this is 535.183.01"),
        ("12.8", "470.82", "needs driver 525 or newer, and this is 470.82"),
        ("13.0", "580.65.06", "torch finds none of them"),
        ("13.0", None, "torch finds none of them"),
    ],
)
def test_devices_that_torch_cannot_use_are_told_with_the_reason(
    built_with: str | None, driver: str | None, reason: str
) -> None:
    told = why_on_processor(2, "2.13.0", built_with, driver)
    assert told.startswith("NVIDIA's driver lists 2 devices, but torch")
    assert reason in told


def test_a_cuda_device_that_is_not_there_is_refused_before_anything_starts(
    paceline: CommandLine,
) -> None:
    result = paceline(*paceline.training("runs/a", "device=cuda"))
    assert result.returncode == 2
    assert "there is no CUDA device that this process may use" in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


def test_processes_that_see_all_devices_count_off() -> None:
    assert [choose_index(rank, 4, {}) for rank in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_GPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0"},
        {"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu=1"},
        {"CUDA_VISIBLE_DEVICES": "3"},
        {"CUDA_VISIBLE_DEVICES": "GPU-8f2a"},
    ],
)
def test_a_process_that_sees_only_its_own_device_takes_it(variables: dict[str, str]) -> None:
    assert choose_index(3, 1, variables) == 0


def test_two_devices_for_each_task_are_never_shared() -> None:
    """Task 1 takes the second of its own two, tasks 2 and 3 the first of theirs."""
    variables = {"SLURM_GPUS_PER_TASK": "2"}
    assert [choose_index(rank, 2, variables) for rank in range(4)] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("rank", "num_visible", "variables"),
    [
        (1, 1, {}),
        (2, 2, {"CUDA_VISIBLE_DEVICES": "0,1"}),
        (1, 1, {"SLURM_TRES_PER_TASK": "cpu=4"}),
        (0, 0, {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_more_processes_than_devices_are_refused(
    rank: int, num_visible: int, variables: dict[str, str]
) -> None:
    with pytest.raises(UserError, match=f"process {rank} of this host has no CUDA device"):
        choose_index(rank, num_visible, variables)


def test_two_processes_on_one_device_are_refused_by_its_name() -> None:
    refuse_shared_device(["GPU-a", "GPU-b"])
    with pytest.raises(UserError, match="processes 0, 2 would share one CUDA device, GPU-a"):
        refuse_shared_device(["GPU-a", "GPU-b", "GPU-a"])


# ---- AMD and Apple: what the kernel and torch's files say is played


def play_kfd(folder: Path, kinds: str) -> Path:
    """Nodes as the kernel lists them: 'c' is a processor, 'g' a GPU."""
    for number, kind in enumerate(kinds):
        node = folder / "nodes" / str(number)
        node.mkdir(parents=True)
        facts = {"cpu_cores_count": 8 * (kind == "c"), "simd_count": 416 * (kind == "g")}
        facts |= {"unique_id": 0xA0 + number}
        node.joinpath("properties").write_text("".join(f"{n} {v}\n" for n, v in facts.items()))
    return folder / "nodes"


@pytest.mark.parametrize(
    ("kinds", "variables", "count"),
    [
        ("", {}, 0),
        ("c", {}, 0),
        ("cg", {}, 1),
        ("ccgggggggg", {}, 8),
        ("ccgggg", {"HIP_VISIBLE_DEVICES": "0,3"}, 2),
        ("ccgggg", {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        ("ccgggg", {"HIP_VISIBLE_DEVICES": "0,1,2", "CUDA_VISIBLE_DEVICES": "1"}, 3),
        ("ccgggg", {"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0,1,2"}, 2),
        ("ccgggg", {"ROCR_VISIBLE_DEVICES": "GPU-a2"}, 1),
        ("ccgggg", {"HIP_VISIBLE_DEVICES": ""}, 0),
        ("ccgggg", {"HIP_VISIBLE_DEVICES": "-1"}, 0),
    ],
)
def test_devices_of_amd_count_as_far_as_a_process_may_use_them(
    tmp_path: Path, kinds: str, variables: dict[str, str], count: int
) -> None:
    assert amd.num_visible_devices(variables, play_kfd(tmp_path, kinds)) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'\n", True),
        ("hip = '7.0'\n", True),
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", False),
    ],
)
def test_a_torch_for_amd_is_known_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    (tmp_path / "version.py").write_text(text)
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(devices, "find_spec", lambda _name: found)
    assert devices.torch_is_for_amd() is expected


def test_devices_of_amd_count_only_for_a_torch_that_can_use_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    nodes = play_kfd(tmp_path, "cgg")
    count = amd.num_visible_devices
    monkeypatch.setattr(amd, "num_visible_devices", lambda variables: count(variables, nodes))
    assert num_visible_devices({}) == 0, "the torch here is built without ROCm"
    monkeypatch.setattr(devices, "torch_is_for_amd", lambda: True)
    assert num_visible_devices({}) == 2


@pytest.mark.parametrize(
    ("device", "answer"),
    [("mps", "device=auto takes the processor there"), ("rocm", "device=cuda, or auto")],
)
def test_other_devices_are_refused_with_what_to_use(
    paceline: CommandLine, device: str, answer: str
) -> None:
    result = paceline(*paceline.training("runs/a", f"device={device}"))
    assert result.returncode == 2
    assert answer in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


def test_a_mac_with_a_gpu_trains_on_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto", 0) == torch.device("cpu")


def test_a_torch_for_amd_is_not_asked_for_kernels_of_nvidia() -> None:
    assert without_kernels("Instinct MI300X", (9, 4), ["gfx90a", "gfx942"]) is None
    assert without_kernels("Tesla V100", (7, 0), ["sm_75"]) is not None
