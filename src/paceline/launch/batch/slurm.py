"""What srun tells the processes that it starts. The batch script for a job is in `sbatch`."""

from collections.abc import Mapping

from paceline.errors import UserError
from paceline.hosts.importing import expand_nodes
from paceline.launch.batch.engines import PORT, Node
from paceline.launch.batch.place import Place, read_master, read_number

_NOT_STARTED_BY_SRUN = ("4294967290", "4294967291")
"""Slurm's numbers for an interactive shell and for a batch script."""


def has_started(variables: Mapping[str, str]) -> bool:
    """In the batch script itself only Slurm's job exists; its one process starts the others."""
    step = variables.get("SLURM_STEP_ID")
    return "SLURM_PROCID" in variables and step is not None and step not in _NOT_STARTED_BY_SRUN


def read_place(variables: Mapping[str, str]) -> Place:
    job = f"{variables.get('SLURM_JOB_ID', '')}.{variables['SLURM_STEP_ID']}"
    restarts = variables.get("SLURM_RESTART_COUNT", "0")
    nodes = variables.get("SLURM_STEP_NODELIST", variables.get("SLURM_JOB_NODELIST", ""))
    here = variables.get("SLURMD_NODENAME")
    return Place(
        source="srun",
        rank=read_number(variables, "SLURM_PROCID"),
        size=read_number(
            variables, "SLURM_STEP_NUM_TASKS", read_number(variables, "SLURM_NTASKS", 1)
        ),
        local_rank=read_number(variables, "SLURM_LOCALID", 0),
        local_size=tasks_here(variables),
        job=f"{job}.{restarts}",
        master=read_master(variables),
        other_hosts=tuple(node for node in expand_nodes(nodes) if node != here),
    )


def tasks_here(variables: Mapping[str, str]) -> int:
    """Slurm counts tasks per node as '2(x3),1': twice three nodes, then one."""
    text = variables.get("SLURM_STEP_TASKS_PER_NODE", variables.get("SLURM_TASKS_PER_NODE", "1"))
    node = read_number(variables, "SLURM_NODEID", 0)
    counts: list[int] = []
    for part in text.split(","):
        tasks, _, times = part.rstrip(")").partition("(x")
        counts += [int(tasks)] * int(times or "1")
    return counts[node] if node < len(counts) else 1


_NUM_PORTS = 1000
"""Jobs that share a host meet on different ports."""


def find_node(variables: Mapping[str, str]) -> Node | None:
    """For a script, whose processes torchrun starts: srun starts one task per host for it."""
    if not has_started(variables):
        return None
    num_tasks = read_number(variables, "SLURM_STEP_NUM_TASKS", 1)
    num_nodes = read_number(variables, "SLURM_STEP_NUM_NODES", 1)
    if num_tasks != num_nodes:
        raise UserError(
            f"srun has started {num_tasks} tasks on {num_nodes} hosts, and each would run the "
            "whole script",
            "srun --ntasks-per-node=1 paceline run --procs N train.py, or: paceline run -- srun "
            "python train.py",
        )
    if num_nodes == 1:
        return None
    nodes = expand_nodes(variables.get("SLURM_STEP_NODELIST", variables["SLURM_JOB_NODELIST"]))
    job = read_number(variables, "SLURM_JOB_ID", 0)
    address, port = read_master(variables) or (nodes[0], PORT + job % _NUM_PORTS)
    return Node(
        "srun", read_number(variables, "SLURM_NODEID"), num_nodes, address, port, job=str(job)
    )
