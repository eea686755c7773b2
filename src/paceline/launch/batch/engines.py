"""Engines that start one process per host: SkyPilot, dstack, Kubeflow Trainer, Vertex AI.

Each tells through variables which host this is, how many there are, and where the first one is.
How many processes a host gets is for Paceline to decide, as torchrun would. Pure: variables in,
node out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.launch.batch.place import Place, read_number
from paceline.strategies.roles import CHIEF, SERVER, WORKER
from paceline.terminal import printable_line

PORT = 29500
"""Where the first host listens when the engine names no port; torchrun's own default."""


class _Task(BaseModel):
    type: str = ""
    index: int = 0
    trial: str | int | None = None


class _Cluster(BaseModel):
    """What CLUSTER_SPEC and TF_CONFIG have in common; what else stands there is passed over."""

    cluster: dict[str, list[str]] | None = None
    """Addresses with their ports, by what the engine calls the role."""
    task: _Task | None = None
    """Which of them this host is."""


@dataclass(frozen=True)
class Node:
    """One host of several, and what its engine tells it."""

    source: str
    rank: int
    count: int
    address: str
    """Of the first host, as the others reach it."""
    port: int = PORT
    num_procs: int | None = None
    """Processes per host, where the engine says it."""
    job: str = ""
    roles: tuple[str, ...] = ()
    """Where the engine names parameter servers: of every host, each of which has one process."""

    def place(self, local_rank: int, num_procs: int) -> Place:
        return Place(
            source=self.source,
            rank=self.rank * num_procs + local_rank,
            size=self.count * num_procs,
            local_rank=local_rank,
            local_size=num_procs,
            job=self.job or self.source,
            master=(self.address, self.port),
            restarts_all=True,
        )


def find_node(variables: Mapping[str, str]) -> Node | None:
    """None on a single host, and where no such engine has started this process."""
    for read in (_skypilot, _dstack, _kubeflow, _vertex, _tf_config):
        node = read(variables)
        if node is not None:
            return _checked(node) if node.count > 1 else None
    return None


def give_back(variables: Mapping[str, str], code: int) -> str | None:
    """What to say at the end of a run whose machines are still paid for, as its job file knows.
    Nothing where the engine begins again."""
    command = variables.get("PACELINE_GIVE_BACK")
    if not command or code not in (0, EXIT_USER_ERROR):
        return None
    return f"to give the machines back: {printable_line(command)}"


def _checked(node: Node) -> Node:
    if not node.address or not 0 <= node.rank < node.count:
        raise UserError(
            f"{node.source} says that this is host {node.rank} of {node.count}, "
            f"and the first is at {node.address!r}",
            "its variables do not fit together; unset them to train on this host alone",
        )
    return node


def _skypilot(variables: Mapping[str, str]) -> Node | None:
    if "SKYPILOT_NODE_RANK" not in variables:
        return None
    addresses = variables.get("SKYPILOT_NODE_IPS", "").split()
    return Node(
        "SkyPilot",
        read_number(variables, "SKYPILOT_NODE_RANK"),
        read_number(variables, "SKYPILOT_NUM_NODES", len(addresses)),
        addresses[0] if addresses else "",
        num_procs=_count_or_none(variables.get("SKYPILOT_NUM_GPUS_PER_NODE")),
        job=variables.get("SKYPILOT_TASK_ID", ""),
    )


def _dstack(variables: Mapping[str, str]) -> Node | None:
    if "DSTACK_NODE_RANK" not in variables:
        return None
    return Node(
        "dstack",
        read_number(variables, "DSTACK_NODE_RANK"),
        read_number(variables, "DSTACK_NODES_NUM", 1),
        variables.get("DSTACK_MASTER_NODE_IP", ""),
        num_procs=_count_or_none(variables.get("DSTACK_GPUS_PER_NODE")),
        job=variables.get("DSTACK_RUN_NAME", ""),
    )


def _kubeflow(variables: Mapping[str, str]) -> Node | None:
    """PET_* are torchrun's options as variables; PET_NPROC_PER_NODE may be 'auto'."""
    if "PET_NODE_RANK" not in variables or "PET_NNODES" not in variables:
        return None
    if ":" in variables["PET_NNODES"]:
        raise UserError(
            f"PET_NNODES is {variables['PET_NNODES']}, a range of hosts",
            "Paceline wants a fixed number of them; or start it with torchrun",
        )
    return Node(
        "Kubeflow Trainer",
        read_number(variables, "PET_NODE_RANK"),
        read_number(variables, "PET_NNODES"),
        variables.get("PET_MASTER_ADDR", ""),
        read_number(variables, "PET_MASTER_PORT", PORT),
        _count_or_none(variables.get("PET_NPROC_PER_NODE")),
        variables.get("PET_RDZV_ID", ""),
    )


def _vertex(variables: Mapping[str, str]) -> Node | None:
    """CLUSTER_SPEC names pools: the first leads, the second are the other workers, the third are
    parameter servers."""
    told = _read_cluster(variables, "CLUSTER_SPEC")
    if told is None:
        return None
    roles = {"workerpool0": CHIEF, "workerpool1": WORKER, "workerpool2": SERVER}
    trial = (told.task and told.task.trial) or ""
    return _of_cluster("Vertex AI", told, roles, f"{variables.get('CLOUD_ML_JOB_ID', '')}{trial}")


def _tf_config(variables: Mapping[str, str]) -> Node | None:
    """Of Estimator and MultiWorkerMirroredStrategy; without a chief the first worker is it."""
    told = _read_cluster(variables, "TF_CONFIG")
    roles = {"chief": CHIEF, "master": CHIEF, "worker": WORKER, "ps": SERVER}
    return None if told is None else _of_cluster("TF_CONFIG", told, roles, "")


def _of_cluster(source: str, told: _Cluster, roles: Mapping[str, str], job: str) -> Node | None:
    """`roles`: what the engine calls them, in the order of ranks, and what they are here."""
    task = told.task or _Task()
    named = told.cluster or {}
    members = [(kind, i, at) for kind in roles for i, at in enumerate(named.get(kind, []))]
    if not members or not task.type:
        return None
    if task.type not in roles:
        raise UserError(
            f"this host is '{task.type}' to {source}, which is no role here: the chief evaluates",
            f"ask for these alone: {', '.join(roles)}",
        )
    known = [(kind, i) for kind, i, _ in members]
    if (task.type, task.index) not in known:
        raise UserError(
            f"{source} says that this is '{task.type}' number {task.index}, which its cluster "
            "does not name",
            "its 'task' must be one of its 'cluster'",
        )
    address, port = _read_address(source, members[0][2])
    here = tuple(roles[kind] for kind, _, _ in members)
    led = (CHIEF, *here[1:]) if here[0] == WORKER else here
    return Node(
        source,
        known.index((task.type, task.index)),
        len(members),
        address,
        port,
        job=job,
        roles=led if SERVER in led else (),
    )


def _read_address(source: str, text: str) -> tuple[str, int]:
    """'host:2222', or a host alone."""
    address, colon, port = text.rpartition(":")
    if not colon:
        return text, PORT
    if not port.isdecimal():
        raise UserError(f"{source} names '{text}', which is no ADDRESS:PORT", "correct its cluster")
    return address, int(port)


def _read_cluster(variables: Mapping[str, str], name: str) -> _Cluster | None:
    if not variables.get(name):
        return None
    try:
        return _Cluster.model_validate_json(variables[name])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"the variable {name} cannot be read: {f'{place}: ' if place else ''}{first['msg']}",
            '{"cluster": {ROLE: [ADDRESS:PORT, ...]}, "task": {"type": ROLE, "index": 0}}; or '
            f"unset {name}",
        ) from error


def _count_or_none(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
