"""Whether somebody else has started this process, and as which part of a world.

Pure: variables in, place out.
"""

from collections.abc import Mapping

from paceline.launch.batch import mpi, slurm, torchrun
from paceline.launch.batch.engines import find_node
from paceline.launch.batch.place import Place, given_place


def find_place(variables: Mapping[str, str]) -> Place | None:
    """None when this process was started by a person or by an engine that starts one per host,
    and starts the others itself.

    torchrun comes first: under `srun torchrun` Slurm's variables mean the torchrun processes.
    """
    if (given := given_place(variables)) is not None:
        return given
    readers = (
        (torchrun.has_started, torchrun.read_place),
        (mpi.has_started, mpi.read_place),
        (lambda told: find_node(told) is not None, lambda _told: None),
        (slurm.has_started, slurm.read_place),
        (_is_by_hand, lambda told: torchrun.read_place(told, source="environment")),
    )
    for has_started, read_place in readers:
        if has_started(variables):
            return read_place(variables)
    return None


def _is_by_hand(variables: Mapping[str, str]) -> bool:
    return "RANK" in variables and "WORLD_SIZE" in variables
