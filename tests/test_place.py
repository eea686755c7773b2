"""A process finds its place in a world that torchrun, Open MPI, Slurm or a person has started."""

import pytest

from paceline.errors import UserError
from paceline.launch.batch.detect import find_place
from paceline.launch.batch.slurm import tasks_here

MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "123",
}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "1",
}


def test_without_variables_a_process_starts_the_others_itself() -> None:
    assert find_place({"PATH": "/bin"}) is None


def test_open_mpi_says_who_is_who() -> None:
    place = find_place(MPI)
    assert place is not None
    assert (place.source, place.rank, place.size) == ("mpirun", 3, 4)
    assert (place.local_rank, place.local_size, place.is_one_host) == (1, 2, False)


def test_slurm_says_who_is_who() -> None:
    place = find_place(SLURM)
    assert place is not None
    assert (place.source, place.rank, place.size) == ("srun", 2, 3)
    assert (place.local_rank, place.local_size) == (0, 1)


def test_a_job_that_was_requeued_does_not_meet_where_it_met_before() -> None:
    first, second = find_place(SLURM), find_place({**SLURM, "SLURM_RESTART_COUNT": "1"})
    assert first is not None and second is not None
    assert first.job != second.job


def test_torchrun_comes_before_slurm_and_mpi() -> None:
    place = find_place({**SLURM, **MPI, **TORCHRUN})
    assert place is not None
    assert (place.source, place.rank, place.size) == ("torchrun", 1, 2)


def test_a_batch_script_and_an_interactive_shell_of_slurm_are_not_tasks() -> None:
    assert find_place({**SLURM, "SLURM_STEP_ID": "4294967291"}) is None
    assert find_place({**SLURM, "SLURM_STEP_ID": "4294967290"}) is None
    without_step = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert find_place(without_step) is None


def test_variables_set_by_hand_are_honoured_and_checked() -> None:
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
    place = find_place(by_hand)
    assert place is not None
    assert (place.source, place.has_master) == ("environment", True)
    with pytest.raises(UserError, match="MASTER_ADDR and MASTER_PORT are not"):
        find_place({"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(UserError, match="RANK is 'one'"):
        find_place({**by_hand, "RANK": "one"})


@pytest.mark.parametrize(
    ("text", "node", "tasks"), [("2(x3),1", "2", 2), ("2(x3),1", "3", 1), ("4", "0", 4)]
)
def test_slurms_way_of_counting_tasks_is_understood(text: str, node: str, tasks: int) -> None:
    assert tasks_here({"SLURM_TASKS_PER_NODE": text, "SLURM_NODEID": node}) == tasks
