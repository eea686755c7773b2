"""torchrun's variables, which people and many schedulers set as well."""

from collections.abc import Mapping

from paceline.errors import UserError
from paceline.launch.batch.place import Place, read_master, read_number


def has_started(variables: Mapping[str, str]) -> bool:
    return "TORCHELASTIC_RUN_ID" in variables


def read_place(variables: Mapping[str, str], source: str = "torchrun") -> Place:
    size = read_number(variables, "WORLD_SIZE")
    if size > 1 and read_master(variables) is None:
        raise UserError(
            "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not",
            "say where the processes meet: MASTER_ADDR=host MASTER_PORT=29500",
        )
    return Place(
        source=source,
        rank=read_number(variables, "RANK"),
        size=size,
        local_rank=read_number(variables, "LOCAL_RANK", 0),
        local_size=read_number(variables, "LOCAL_WORLD_SIZE", 1),
        job=variables.get("TORCHELASTIC_RUN_ID", ""),
        master=read_master(variables),
    )
