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
from paceline.terminal import printable_line

PORT = 29500
"""Where the first host listens when the engine names no port; torchrun's own default."""


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
    """CLUSTER_SPEC names pools: the first leads, the second are the other workers."""
    spec = _read_json(variables, "CLUSTER_SPEC")
    if spec is None:
        return None
    roles = ["workerpool0", "workerpool1"]
    job = variables.get("CLOUD_ML_JOB_ID", "")
    return _of_cluster(
        "Vertex AI", spec, roles, f"{job}{(spec.get('task') or {}).get('trial', '')}"
    )


def _tf_config(variables: Mapping[str, str]) -> Node | None:
    spec = _read_json(variables, "TF_CONFIG")
    return (
        None if spec is None else _of_cluster("TF_CONFIG", spec, ["chief", "master", "worker"], "")
    )


def _of_cluster(source: str, spec: dict[str, Any], roles: list[str], job: str) -> Node | None:
    cluster, task = spec.get("cluster") or {}, spec.get("task") or {}
    role, index = str(task.get("type", "")), task.get("index", 0)
    workers = [(name, i, at) for name in roles for i, at in enumerate(cluster.get(name) or [])]
    if not workers or not role:
        return None
    if role not in roles:
        raise UserError(
            f"this host is '{role}' to {source}, and Paceline trains with equal workers only",
            f"ask for workers alone ({', '.join(roles)})",
        )
    rank = [(name, i) for name, i, _ in workers].index((role, int(index)))
    address, _, port = str(workers[0][2]).rpartition(":")
    return Node(source, rank, len(workers), address, int(port), job=job)


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
