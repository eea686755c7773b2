"""What Open MPI's mpirun tells the processes that it starts.

MPI only starts them; they talk with each other through torch's collectives.
"""

from collections.abc import Mapping

from paceline.launch.batch.place import Place, read_master, read_number

_RANK, _SIZE = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
_CONTACT = "OMPI_MCA_orte_hnp_uri"


def has_started(variables: Mapping[str, str]) -> bool:
    return _RANK in variables and _SIZE in variables


def read_place(variables: Mapping[str, str]) -> Place:
    return Place(
        source="mpirun",
        rank=read_number(variables, _RANK),
        size=read_number(variables, _SIZE),
        local_rank=read_number(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        local_size=read_number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", 1),
        job=variables.get("PMIX_NAMESPACE", variables.get("OMPI_MCA_ess_base_jobid", "")),
        master=read_master(variables),
        other_hosts=_addresses_of_mpirun(variables),
    )


def _addresses_of_mpirun(variables: Mapping[str, str]) -> tuple[str, ...]:
    """mpirun's own host is told as '1234.0;tcp://10.0.0.1,10.0.1.1:4567'."""
    contact = variables.get(_CONTACT, "").partition("tcp://")[2].partition(";")[0]
    return tuple(address for address in contact.rpartition(":")[0].split(",") if address)
