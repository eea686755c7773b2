"""The specification of a custom job for Vertex AI, the successor of AI Platform's config.yaml.

`gcloud ai custom-jobs create --config` wants what the API calls CustomJobSpec. The first pool is
the host that leads, the second the others, the third parameter servers, which compute nothing that
an accelerator would be for.
"""

from typing import Any

from paceline.errors import UserError
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import Request, check_request, require

_NFS_MOUNT = "paceline"
_ACCELERATORS = {
    "P100": "NVIDIA_TESLA_P100",
    "V100": "NVIDIA_TESLA_V100",
    "P4": "NVIDIA_TESLA_P4",
    "T4": "NVIDIA_TESLA_T4",
    "A100": "NVIDIA_TESLA_A100",
    "L4": "NVIDIA_L4",
    "H100": "NVIDIA_H100_80GB",
    "H200": "NVIDIA_H200_141GB",
    "B200": "NVIDIA_B200",
    "GB200": "NVIDIA_GB200",
}
"""As everybody says, and as Vertex AI does."""


def write_vertex(request: Request, num_parameter_servers: int = 0) -> str:
    check_request(request)
    pool = _pool(request)
    pools = [pool | {"replicaCount": "1"}]
    if request.num_hosts > 1:
        pools.append(pool | {"replicaCount": str(request.num_hosts - 1)})
    if num_parameter_servers:
        while len(pools) < 2:
            pools.append({})
        pools.append(_without_accelerators(pool) | {"replicaCount": str(num_parameter_servers)})
    spec = {
        "workerPoolSpecs": pools,
        "scheduling": _scheduling(request),
        **_output(request),
    }
    return to_yaml(vertex_heading(request.name, request.region), spec)


def vertex_heading(name: str, region: str | None) -> list[str]:
    place = f"--region={region or 'REGION'}"
    return [
        "Vertex AI: CustomJobSpec",
        f"hand in:    gcloud ai custom-jobs create {place} --display-name={name} --config=FILE",
        f"end early:  gcloud ai custom-jobs cancel JOB {place}   (machines end with the job)",
    ]


def _pool(request: Request) -> dict[str, Any]:
    image = require(request.image, "--image", "Vertex AI starts containers (docs/containers.md)")
    machine = request.machine
    if machine.type is None:
        raise UserError(
            "Vertex AI must know which machines",
            "--type n1-standard-8, or with accelerators: --type n1-standard-8+T4:1",
        )
    lines = [*request.setup, f"exec {request.command_line}"]
    container: dict[str, Any] = {"imageUri": image}
    if request.setup:
        container |= {"command": ["sh", "-ec"], "args": ["\n".join(lines)]}
    else:
        container |= {"command": [request.command[0]], "args": list(request.command[1:])}
    return {
        "machineSpec": {
            "machineType": machine.type,
            "acceleratorType": _accelerator(machine.accelerator),
            "acceleratorCount": machine.num_accelerators or None,
        },
        "replicaCount": "1",
        "containerSpec": container,
        "nfsMounts": _nfs(request.storage),
    }


def _accelerator(name: str | None) -> str | None:
    if name is None or name.startswith(("NVIDIA_", "TPU_")):
        return name
    if name.upper() not in _ACCELERATORS:
        raise UserError(
            f"Vertex AI has no accelerator {name}",
            f"one of {', '.join(_ACCELERATORS)}, or by Vertex AI's own name (NVIDIA_A100_80GB)",
        )
    return _ACCELERATORS[name.upper()]


def _without_accelerators(pool: dict[str, Any]) -> dict[str, Any]:
    return {**pool, "machineSpec": {"machineType": pool["machineSpec"]["machineType"]}}


def _scheduling(request: Request) -> dict[str, Any]:
    """The processes of a world must all begin again when one of them does."""
    return {
        "timeout": f"{round(request.hours * 3600)}s" if request.hours else None,
        "restartJobOnWorkerRestart": request.num_hosts > 1,
        "strategy": "SPOT" if request.spot else None,
    }


def _nfs(storage: str | None) -> list[dict[str, str]] | None:
    if storage is None or not storage.startswith("nfs://"):
        return None
    server, _, path = storage.removeprefix("nfs://").partition("/")
    return [{"server": server, "path": f"/{path}", "mountPoint": _NFS_MOUNT}]


def _output(request: Request) -> dict[str, Any]:
    if request.storage is None or not request.storage.startswith("gs://"):
        return {}
    return {"baseOutputDirectory": {"outputUriPrefix": request.storage}}


def vertex_directory(storage: str) -> str:
    """Where Vertex AI mounts it: buckets by themselves, NFS under a fixed directory."""
    if storage.startswith("gs://") and len(storage) > 5:
        return f"/gcs/{storage.removeprefix('gs://').rstrip('/')}"
    if storage.startswith("nfs://") and "/" in storage.removeprefix("nfs://"):
        return f"/mnt/nfs/{_NFS_MOUNT}"
    raise UserError(
        f"Vertex AI cannot mount {storage}", "gs://BUCKET, or nfs://ADDRESS/PATH for an NFS server"
    )
