"""A process finds its place in a world that torchrun, Open MPI, Slurm, a person or an engine that
starts one process per host has started."""

import json
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.launch.batch.detect import find_place
from paceline.launch.batch.engines import Node, find_node
from paceline.launch.batch.slurm import tasks_here
from paceline.launch.script.command import script_command

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
    assert (place.source, place.master) == ("environment", ("h", 29500))
    with pytest.raises(UserError, match="MASTER_ADDR and MASTER_PORT are not"):
        find_place({"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(UserError, match="RANK is 'one'"):
        find_place({**by_hand, "RANK": "one"})


@pytest.mark.parametrize(
    ("text", "node", "tasks"), [("2(x3),1", "2", 2), ("2(x3),1", "3", 1), ("4", "0", 4)]
)
def test_slurms_way_of_counting_tasks_is_understood(text: str, node: str, tasks: int) -> None:
    assert tasks_here({"SLURM_TASKS_PER_NODE": text, "SLURM_NODEID": node}) == tasks


# As the engines set them: SkyPilot 0.14 (sky/backends/task_codegen.py), dstack's runner
# (runner/internal/executor), Kubeflow Trainer 2 (its torch plugin), Vertex AI's documentation.
SKYPILOT = {
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3",
    "SKYPILOT_NUM_NODES": "3",
    "SKYPILOT_NODE_RANK": "2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "4",
    "SKYPILOT_TASK_ID": "sky-2026-01-01-00-00-00-000000_train_1-0",
    "SKYPILOT_INTERNAL_JOB_ID": "1",
}
DSTACK = {
    "DSTACK_RUN_NAME": "train",
    "DSTACK_NODES_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3",
    "DSTACK_MASTER_NODE_IP": "10.0.0.1",
    "DSTACK_NODE_RANK": "2",
    "DSTACK_NODES_NUM": "3",
    "DSTACK_GPUS_PER_NODE": "4",
    "DSTACK_GPUS_NUM": "12",
}
KUBEFLOW = {
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "4",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "10.0.0.1",
    "PET_MASTER_PORT": "29500",
}
POOLS = {"workerpool0": ["10.0.0.1:2222"], "workerpool1": ["10.0.0.2:2222", "10.0.0.3:2222"]}


def cluster_spec(role: str, index: int, **more: list[str]) -> dict[str, str]:
    task = {"type": role, "index": index, "trial": ""}
    spec = {"cluster": {**POOLS, **more}, "environment": "cloud", "task": task}
    return {"CLUSTER_SPEC": json.dumps(spec)}


VERTEX = cluster_spec("workerpool1", 1)


@pytest.mark.parametrize("variables", [SKYPILOT, DSTACK, KUBEFLOW])
def test_the_third_host_of_three_with_four_gpus_each_has_the_last_four_ranks(
    variables: dict[str, str],
) -> None:
    node = find_node(variables)
    assert node is not None
    assert (node.rank, node.count, node.address, node.num_procs) == (2, 3, "10.0.0.1", 4)
    places = [node.place(number, 4) for number in range(4)]
    assert [place.rank for place in places] == [8, 9, 10, 11]
    assert {(place.size, place.local_size) for place in places} == {(12, 4)}
    assert find_place(variables) is None, "this process starts those of its host"


def test_vertex_counts_its_pools_one_after_the_other() -> None:
    node = find_node(VERTEX)
    assert node is not None
    assert (node.source, node.rank, node.count) == ("Vertex AI", 2, 3)
    assert (node.address, node.port) == ("10.0.0.1", 2222)
    first = find_node(cluster_spec("workerpool0", 0))
    assert first is not None and first.rank == 0


def test_parameter_servers_of_vertex_are_its_third_pool() -> None:
    node = find_node(cluster_spec("workerpool2", 0, workerpool2=["10.0.0.4:2222"]))
    assert node is not None
    assert (node.rank, node.count) == (3, 4)
    assert node.roles == ("chief", "worker", "worker", "server")


def test_without_parameter_servers_all_hosts_are_alike() -> None:
    node = find_node(VERTEX)
    assert node is not None
    assert node.roles == ()


def test_a_role_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="'workerpool3' to Vertex AI, which is no role here"):
        find_node(cluster_spec("workerpool3", 0, workerpool3=["10.0.0.4:2222"]))
    with pytest.raises(UserError, match="'workerpool1' number 7, which its cluster does not name"):
        find_node(cluster_spec("workerpool1", 7))


@pytest.mark.parametrize("leader", ["chief", "master"])
def test_tf_config_leads_with_its_chief(leader: str) -> None:
    cluster = {leader: ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    node = find_node({"TF_CONFIG": text})
    assert node is not None
    assert (node.rank, node.count, node.address, node.port) == (1, 4, "a", 1)
    assert node.roles == ("chief", "worker", "worker", "server")


def test_without_a_chief_in_tf_config_the_first_worker_is_it() -> None:
    cluster = {"worker": ["b:2", "c:3"], "ps": ["d:4"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": "0"}})
    node = find_node({"TF_CONFIG": text})
    assert node is not None
    assert (node.rank, node.address, node.roles) == (2, "b", ("chief", "worker", "server"))


def test_a_single_host_trains_as_if_no_engine_had_started_it() -> None:
    assert find_node({**SKYPILOT, "SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"}) is None
    assert find_node({"TF_CONFIG": "{}"}) is None
    assert find_node({"PET_NPROC_PER_NODE": "4"}) is None


def test_automatic_numbers_of_processes_are_found_out_on_the_host() -> None:
    node = find_node({**KUBEFLOW, "PET_NPROC_PER_NODE": "auto"})
    assert node is not None and node.num_procs is None


def test_variables_of_an_engine_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(UserError, match="host 7 of 3"):
        find_node({**SKYPILOT, "SKYPILOT_NODE_RANK": "7"})
    with pytest.raises(UserError, match="a range of hosts"):
        find_node({**KUBEFLOW, "PET_NNODES": "1:3"})


@pytest.mark.parametrize("name", ["CLUSTER_SPEC", "TF_CONFIG"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "cannot be read"),
        ('{"cluster": ["a:1"]}', "cluster"),
        ('{"cluster": {}, "task": {"type": "worker", "index": "x"}}', "task.index"),
        ('{"cluster": {}, "task": "worker"}', "task"),
    ],
)
def test_a_cluster_in_a_form_that_nobody_writes_is_refused(
    name: str, text: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        find_node({name: text})
    assert f"unset {name}" in caught.value.fix


def test_a_host_without_a_port_is_met_at_torchruns_own_and_one_with_letters_is_refused() -> None:
    task = {"type": "worker", "index": 1}
    node = find_node({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a", "b"]}, "task": task})})
    assert node is not None and (node.address, node.port) == ("a", 29500)
    with pytest.raises(UserError, match="'a:x', which is no ADDRESS:PORT"):
        find_node({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:x", "b"]}, "task": task})})


def test_a_process_that_was_put_into_a_place_takes_it_whatever_the_engine_says() -> None:
    node = Node("SkyPilot", 1, 2, "10.0.0.1")
    place = node.place(1, 2)
    assert find_place({**SKYPILOT, **place.to_environment()}) == place


def test_torchrun_comes_before_the_engine_that_started_it() -> None:
    place = find_place({**SKYPILOT, **TORCHRUN})
    assert place is not None and place.source == "torchrun"


def test_a_script_below_an_engine_is_started_by_torchrun_with_what_the_engine_says(
    tmp_path: Path,
) -> None:
    node = find_node(SKYPILOT)
    script = tmp_path / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    words = script_command([str(script)], False, None, "python3", node).words
    assert "--nproc-per-node=4" in words and "--standalone" not in words
    assert {"--nnodes=3", "--node-rank=2", "--master-addr=10.0.0.1"} <= set(words)
