"""Engines that start one process per host: SkyPilot, dstack, Kubeflow Trainer, Vertex AI.

Each tells through variables which host this is, how many there are, and where the first one is.
How many processes a host gets is for Paceline to decide, as torchrun would. Pure: variables in,
node out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.launch.batch.place import Place, read_number
from paceline.strategies.roles import CHIEF, SERVER, WORKER
from paceline.terminal import printable_line

PORT = 29500
"""Where the first host listens when the engine names no port; torchrun's own default."""

_CLUSTER_FORM = (
    'write {"cluster": {"chief": ["HOST:PORT"], "worker": ["HOST:PORT", ...], "ps": [...]}, '
    '"task": {"type": "worker", "index": 0}}'
)


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
    spec = _read_json(variables, "CLUSTER_SPEC")
    if spec is None:
        return None
    roles = {"workerpool0": CHIEF, "workerpool1": WORKER, "workerpool2": SERVER}
    job = variables.get("CLOUD_ML_JOB_ID", "")
    trial = _part("Vertex AI", spec, "task").get("trial", "")
    return _of_cluster("Vertex AI", spec, roles, f"{job}{trial}")


def _tf_config(variables: Mapping[str, str]) -> Node | None:
    """Of Estimator and MultiWorkerMirroredStrategy; without a chief the first worker is it."""
    spec = _read_json(variables, "TF_CONFIG")
    roles = {"chief": CHIEF, "master": CHIEF, "worker": WORKER, "ps": SERVER}
    return None if spec is None else _of_cluster("TF_CONFIG", spec, roles, "")


def _of_cluster(
    source: str, spec: dict[str, Any], roles: Mapping[str, str], job: str
) -> Node | None:
    """`roles`: what the engine calls them, in the order of ranks, and what they are here."""
    cluster, task = _part(source, spec, "cluster"), _part(source, spec, "task")
    members = [
        (kind, index, str(at))
        for kind in roles
        for index, at in enumerate(_addresses(source, cluster, kind))
    ]
    if not members or not task.get("type"):
        return None
    known = [(kind, index) for kind, index, _ in members]
    rank = known.index(_own_task(source, task, roles, known))
    address, port = _address_and_port(source, members[0][2])
    here = tuple(roles[kind] for kind, _, _ in members)
    named = (CHIEF, *here[1:]) if here[0] == WORKER else here
    has_servers = SERVER in named
    return Node(
        source, rank, len(members), address, port, job=job, roles=named if has_servers else ()
    )


def _part(source: str, spec: dict[str, Any], name: str) -> dict[str, Any]:
    part = spec.get(name) or {}
    if not isinstance(part, dict):
        raise UserError(f"'{name}' in {source} is {part!r}", _CLUSTER_FORM)
    return part


def _addresses(source: str, cluster: dict[str, Any], kind: str) -> list[Any]:
    addresses = cluster.get(kind) or []
    if not isinstance(addresses, list):
        raise UserError(f"'{kind}' in {source} is {addresses!r}, which is no list", _CLUSTER_FORM)
    return addresses


def _own_task(
    source: str, task: dict[str, Any], roles: Mapping[str, str], known: list[tuple[str, int]]
) -> tuple[str, int]:
    name, number = str(task["type"]), str(task.get("index", 0))
    if name not in roles:
        raise UserError(
            f"this host is '{name}' to {source}, which is no role here: the chief evaluates",
            f"ask for these alone: {', '.join(roles)}",
        )
    if not number.isdecimal() or (name, int(number)) not in known:
        raise UserError(
            f"{source} says that this is '{name}' number {number}, which its cluster does not name",
            "its 'task' must be one of its 'cluster'",
        )
    return name, int(number)


def _address_and_port(source: str, text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal():
        raise UserError(f"{source} names '{text}', which is no HOST:PORT", _CLUSTER_FORM)
    return address, int(port)


def _read_json(variables: Mapping[str, str], name: str) -> dict[str, Any] | None:
    if not variables.get(name):
        return None
    try:
        spec = json.loads(variables[name])
    except ValueError as error:
        raise UserError(f"the variable {name} is not JSON: {error}", f"unset {name}") from error
    return spec if isinstance(spec, dict) else None


def _count_or_none(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
