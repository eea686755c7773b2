"""A process's place in a world that somebody else has started, and the reading of variables.

Who has started it, and under which names they tell, is in `torchrun`, `mpi` and `slurm`.
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
    other_hosts: tuple[str, ...] = ()
    """Names or addresses, as far as whoever started the processes tells."""

    @property
    def is_one_host(self) -> bool:
        return self.local_size == self.size

    @property
    def file_name(self) -> str:
        """The job's, where only letters, digits and dashes are wanted."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.job) or "job"


def has_master(variables: Mapping[str, str]) -> bool:
    return "MASTER_ADDR" in variables and "MASTER_PORT" in variables


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
