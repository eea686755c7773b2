"""A process's place in a world that somebody else has started, and the reading of variables.

Who has started it, and under which names they tell, is in `torchrun`, `mpi`, `slurm`, `engines`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from paceline.errors import UserError

_VARIABLE = "PACELINE_PLACE"


@dataclass(frozen=True)
class Place:
    source: str
    """Who started the processes: torchrun, mpirun, srun, an engine or, by hand, the environment."""
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str
    """The same in all processes of one start, and in no other."""
    master: tuple[str, int] | None = None
    """Address and port of the first process, where whoever started the processes names them."""
    other_hosts: tuple[str, ...] = ()
    """Names or addresses, as far as whoever started the processes tells."""
    restarts_all: bool = False
    """An end that is no finish is for the engine to begin again; it learns so by the exit code."""

    @property
    def is_one_host(self) -> bool:
        return self.local_size == self.size

    def to_environment(self) -> dict[str, str]:
        """For a process that is started in this place."""
        return {_VARIABLE: json.dumps(asdict(self))}

    @property
    def file_name(self) -> str:
        """The job's, where only letters, digits and dashes are wanted."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.job) or "job"


def given_place(variables: Mapping[str, str]) -> Place | None:
    """Where another Paceline on this host has put this process."""
    if _VARIABLE not in variables:
        return None
    told = json.loads(variables[_VARIABLE])
    master = tuple(told["master"]) if told["master"] else None
    return Place(**{**told, "master": master, "other_hosts": tuple(told["other_hosts"])})


def read_master(variables: Mapping[str, str]) -> tuple[str, int] | None:
    if "MASTER_ADDR" not in variables or "MASTER_PORT" not in variables:
        return None
    return variables["MASTER_ADDR"], read_number(variables, "MASTER_PORT")


def read_number(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = variables.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        raise UserError(
            f"the variable {name} is {text!r}, but must be a whole number",
            "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together, or none",
        )
    return int(text)
