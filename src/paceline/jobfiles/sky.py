"""A task file for SkyPilot, which finds machines in some twenty clouds and on one's own hosts.

With spot machines it is a managed job: SkyPilot watches it, and starts it again elsewhere when its
machines are taken away. Otherwise the cluster ends itself when it has been idle for a while.
"""

import shlex
from typing import Any

from paceline.errors import UserError
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import CODE, MOUNT, STOPPED, Request, check_request

_IDLE_MINUTES = 10
_RESTARTS_ON_ERRORS = 3
"""Machines that are taken away do not count; SkyPilot cannot tell a mistake from a fault."""
_ENVIRONMENT = "$HOME/paceline-env"
_PATH = f'export PATH="{_ENVIRONMENT}/bin:$PATH"'
_BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://")


def write_sky(request: Request) -> str:
    check_request(request)
    task: dict[str, Any] = {
        "name": request.name,
        "num_nodes": request.num_hosts,
        "workdir": "." if request.sends_code else None,
        "resources": _resources(request),
        **_storage(request),
        # A managed job's machines end with it.
        "envs": request.variables(None if request.spot else f"sky down {request.name}"),
        "setup": _setup(request),
        "run": _run(request),
    }
    return to_yaml(_heading(request), task)


def _heading(request: Request) -> list[str]:
    lines = [
        f"SkyPilot: {request.num_hosts} x {request.machine.type or request.machine.accelerator}"
    ]
    hand_in = shlex.join(word for word in sky_command(request) if word != "--yes")
    if request.spot:
        lines += [
            f"hand in:    {hand_in}",
            "machines that are taken away are replaced, and the run goes on where it had saved",
            f"end early:  sky jobs cancel --name {request.name}",
        ]
    else:
        lines += [
            f"hand in:    {hand_in}",
            f"give back:  sky down {request.name}   (by itself after {_IDLE_MINUTES} idle minutes)",
        ]
    return lines


def sky_command(request: Request) -> list[str]:
    """What hands FILE in. A group that exists already cannot be named in the file itself."""
    kind = ["jobs", "launch", "--name"] if request.spot else ["launch", "--cluster"]
    group = f"aws.security_group_name={request.group}"
    config = ["--config", group] if request.group else []
    return ["sky", *kind, request.name, "--yes", *config, "FILE"]


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
    sent = {f"~/{CODE}/{name}": path for name, path in request.sent_source().items()}
    if request.storage is None:
        return {"file_mounts": sent}
    if request.storage.startswith(_BUCKETS):
        bucket = {"source": request.storage, "mode": "MOUNT_CACHED"}
        return {"file_mounts": {**sent, MOUNT: bucket}}
    if "://" in request.storage:
        raise UserError(
            f"SkyPilot mounts no {request.storage.partition('://')[0]}://",
            f"a bucket ({', '.join(_BUCKETS)}) or the name of a volume (`sky volumes ls`)",
        )
    return {"file_mounts": sent, "volumes": {MOUNT: request.storage}}


def _setup(request: Request) -> str | None:
    """SkyPilot's machines have a Python that may be too old, so that there is one of its own."""
    words = request.pip_words(f"$HOME/{CODE}")
    install = [
        "pip install --quiet uv",
        f"uv venv --quiet --allow-existing --python '>=3.11' {_ENVIRONMENT}",
        _PATH,
        f"uv pip install --quiet --python {_ENVIRONMENT} {words}",
    ]
    lines = [*(install if words else []), *request.setup]
    return "".join(f"{line}\n" for line in lines) or None


def _run(request: Request) -> str:
    path = "" if request.image else f"{_PATH}\n"
    return f"{path}{request.command_line}\n"
