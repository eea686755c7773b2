"""This process's place in a world that somebody else has started: torchrun, Open MPI or Slurm.

Pure: variables in, place out. torchrun comes first, because under `srun torchrun` Slurm's variables
are there too and mean the torchrun processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.errors import UserError


@dataclass(frozen=True)
class Place:
    source: str
    """Who started the processes: torchrun, mpirun, srun or, by hand, the environment."""
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str
    """The same in all processes of one start, and in no other."""
    has_master: bool
    """MASTER_ADDR and MASTER_PORT say where to meet."""

    @property
    def is_one_host(self) -> bool:
        return self.local_size == self.size


_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
_NOT_STARTED_BY_SRUN = ("4294967290", "4294967291")
"""Slurm's numbers for an interactive shell and for a batch script."""


def find_place(variables: Mapping[str, str]) -> Place | None:
    """None when this process was started by a person, and starts the others itself."""
    if "TORCHELASTIC_RUN_ID" in variables:
        return _by_rank("torchrun", variables)
    if all(name in variables for name in _MPI):
        return _mpi(variables)
    if "SLURM_PROCID" in variables and "SLURM_STEP_ID" in variables and _is_srun(variables):
        return _slurm(variables)
    if "RANK" in variables and "WORLD_SIZE" in variables:
        return _by_rank("environment", variables)
    return None


def _has_master(variables: Mapping[str, str]) -> bool:
    return "MASTER_ADDR" in variables and "MASTER_PORT" in variables


def _number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = variables.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        raise UserError(
            f"the variable {name} is {text!r}, but must be a whole number",
            "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together, or none",
        )
    return int(text)


def _by_rank(source: str, variables: Mapping[str, str]) -> Place:
    size = _number(variables, "WORLD_SIZE")
    place = Place(
        source=source,
        rank=_number(variables, "RANK"),
        size=size,
        local_rank=_number(variables, "LOCAL_RANK", 0),
        local_size=_number(variables, "LOCAL_WORLD_SIZE", 1),
        job=variables.get("TORCHELASTIC_RUN_ID", ""),
        has_master=_has_master(variables),
    )
    if size > 1 and not place.has_master:
        raise UserError(
            "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not",
            "say where the processes meet: MASTER_ADDR=host MASTER_PORT=29500",
        )
    return place


def _mpi(variables: Mapping[str, str]) -> Place:
    return Place(
        source="mpirun",
        rank=_number(variables, "OMPI_COMM_WORLD_RANK"),
        size=_number(variables, "OMPI_COMM_WORLD_SIZE"),
        local_rank=_number(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        local_size=_number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", 1),
        job=variables.get("PMIX_NAMESPACE", variables.get("OMPI_MCA_ess_base_jobid", "")),
        has_master=_has_master(variables),
    )


def _is_srun(variables: Mapping[str, str]) -> bool:
    """In the batch script itself only Slurm's job exists; its one process starts the others."""
    return variables["SLURM_STEP_ID"] not in _NOT_STARTED_BY_SRUN


def _slurm(variables: Mapping[str, str]) -> Place:
    job = f"{variables.get('SLURM_JOB_ID', '')}.{variables['SLURM_STEP_ID']}"
    restarts = variables.get("SLURM_RESTART_COUNT", "0")
    return Place(
        source="srun",
        rank=_number(variables, "SLURM_PROCID"),
        size=_number(variables, "SLURM_STEP_NUM_TASKS", _number(variables, "SLURM_NTASKS", 1)),
        local_rank=_number(variables, "SLURM_LOCALID", 0),
        local_size=tasks_here(variables),
        job=f"{job}.{restarts}",
        has_master=_has_master(variables),
    )


def tasks_here(variables: Mapping[str, str]) -> int:
    """Slurm counts tasks per node as '2(x3),1': twice three nodes, then one."""
    text = variables.get("SLURM_STEP_TASKS_PER_NODE", variables.get("SLURM_TASKS_PER_NODE", "1"))
    node = _number(variables, "SLURM_NODEID", 0)
    counts: list[int] = []
    for part in text.split(","):
        tasks, _, times = part.rstrip(")").partition("(x")
        counts += [int(tasks)] * int(times or "1")
    return counts[node] if node < len(counts) else 1
