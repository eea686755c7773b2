"""A task file for SkyPilot, which finds machines in some twenty clouds and on one's own hosts.

With spot machines it is a managed job: SkyPilot watches it, and starts it again elsewhere when its
machines are taken away. Otherwise the cluster ends itself when it has been idle for a while.
"""

import shlex
from typing import Any

from paceline.errors import UserError
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import MOUNT, STOPPED, Request, check_request

_IDLE_MINUTES = 10
_RESTARTS_ON_ERRORS = 3
"""Machines that are taken away do not count; SkyPilot cannot tell a mistake from a fault."""
_BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://")


def write_sky(request: Request) -> str:
    check_request(request)
    task: dict[str, Any] = {
        "name": request.name,
        "num_nodes": request.num_hosts,
        "workdir": "." if request.sends_code else None,
        "resources": _resources(request),
        **_storage(request),
        "envs": {"PACELINE_SPOT": "1"} if request.spot else None,
        "setup": _setup(request),
        "run": f"{request.command_line}\n",
    }
    return to_yaml(_heading(request), task)


def _heading(request: Request) -> list[str]:
    lines = [
        f"SkyPilot: {request.num_hosts} x {request.machine.type or request.machine.accelerator}"
    ]
    if request.spot:
        lines += [
            f"hand in:    sky jobs launch --name {request.name} FILE",
            "machines that are taken away are replaced, and the run goes on where it had saved",
            f"end early:  sky jobs cancel --name {request.name}",
        ]
    else:
        lines += [
            f"hand in:    sky launch --cluster {request.name} FILE",
            f"give back:  sky down {request.name}   (by itself after {_IDLE_MINUTES} idle minutes)",
        ]
    return lines


def _resources(request: Request) -> dict[str, Any]:
    machine = request.machine
    if machine.type is None and machine.accelerator is None:
        raise UserError("SkyPilot must know which machines", "--type A100:8 or --type g4dn.2xlarge")
    accelerators = f"{machine.accelerator}:{machine.num_accelerators}"
    return {
        "infra": request.region,
        "instance_type": machine.type,
        "accelerators": accelerators if machine.accelerator else None,
        "image_id": f"docker:{request.image}" if request.image else None,
        "use_spot": request.spot,
        # Without `ports` SkyPilot admits ssh and the cluster's own hosts, and nobody else.
        "job_recovery": {
            "max_restarts_on_errors": _RESTARTS_ON_ERRORS,
            "recover_on_exit_codes": [STOPPED],
        }
        if request.spot
        else None,
        "autostop": None if request.spot else {"idle_minutes": _IDLE_MINUTES, "down": True},
    }


def _storage(request: Request) -> dict[str, Any]:
    """A bucket is mounted through a cache, because a plain mount cannot append to a file."""
    if request.storage is None:
        return {}
    if request.storage.startswith(_BUCKETS):
        return {"file_mounts": {MOUNT: {"source": request.storage, "mode": "MOUNT_CACHED"}}}
    if "://" in request.storage:
        raise UserError(
            f"SkyPilot mounts no {request.storage.partition('://')[0]}://",
            f"a bucket ({', '.join(_BUCKETS)}) or the name of a volume (`sky volumes ls`)",
        )
    return {"volumes": {MOUNT: request.storage}}


def _setup(request: Request) -> str | None:
    lines = list(request.setup)
    if request.image is None:
        lines.insert(0, f"pip install {shlex.quote(request.install)}")
    return "".join(f"{line}\n" for line in lines) or None
