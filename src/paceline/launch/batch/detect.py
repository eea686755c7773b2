"""Whether somebody else has started this process, and as which part of a world.

Pure: variables in, place out.
"""

from collections.abc import Mapping

from paceline.launch.batch import mpi, slurm, torchrun
from paceline.launch.batch.place import Place


def find_place(variables: Mapping[str, str]) -> Place | None:
    """None when this process was started by a person, and starts the others itself.

    torchrun comes first: under `srun torchrun` Slurm's variables mean the torchrun processes.
    """
    if torchrun.has_started(variables):
        return torchrun.read_place(variables)
    if mpi.has_started(variables):
        return mpi.read_place(variables)
    if slurm.has_started(variables):
        return slurm.read_place(variables)
    if "RANK" in variables and "WORLD_SIZE" in variables:
        return torchrun.read_place(variables, source="environment")
    return None
