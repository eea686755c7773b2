"""Which CUDA device belongs to which process; no device is needed for that."""

import pytest

from paceline.errors import UserError
from paceline.machine.devices import choose_index, refuse_shared_device


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
