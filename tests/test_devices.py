"""How many processes a host starts, and which device is whose. What the driver says is played."""

from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.machine.devices import (
    choose_index,
    choose_processes,
    num_visible_devices,
    refuse_shared_device,
)
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


def test_more_processes_than_devices_are_refused_before_anything_starts(
    paceline: CommandLine, tmp_path: Path
) -> None:
    path = play_driver(tmp_path, cards(1))
    command = paceline.training("runs/a", "steps=1", procs=2)
    result = paceline(*command, PATH=path, CUDA_VISIBLE_DEVICES="0")
    assert result.returncode == 2
    assert "2 processes were asked for, and there is 1 CUDA device" in result.stderr
    assert "--procs 1, or train on the processor: device=cpu" in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


def test_the_number_of_processes_is_said_with_its_reason(
    paceline: CommandLine, tmp_path: Path
) -> None:
    command = paceline.training("runs/a", "steps=1", "evaluate.every_steps=null")[:-2]
    path = play_driver(tmp_path, cards(8))
    result = paceline(*command, PATH=path, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7")
    assert result.returncode == 0, result.stderr
    assert "processes: 4 (of 8 CUDA devices, because a step has only 4 micro-batches" in (
        result.stderr
    )
    assert len(list((paceline.cwd / "runs/a/events").glob("rank-*.jsonl"))) == 4


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
