"""A task file for dstack, on clouds or on one's own hosts (a fleet over ssh)."""

from typing import Any

from paceline.errors import UserError
from paceline.hosts.file import Host
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import CODE, MOUNT, Request, check_request
from paceline.units import count_of

_RETRY = "30m"
"""Since the last failure. dstack cannot tell a mistake from a fault, so it is not for ever."""


def write_dstack(request: Request) -> str:
    check_request(request)
    machine = request.machine
    variables = request.variables("dstack fleet, then: dstack fleet delete FLEET") or {}
    task: dict[str, Any] = {
        "type": "task",
        "name": request.name,
        "nodes": request.num_hosts,
        "image": request.image,
        "python": None if request.image else "3.12",
        "env": [f"{name}={value}" for name, value in variables.items()],
        "files": _files(request),
        "commands": _commands(request),
        "instance_types": [machine.type] if machine.type else None,
        "regions": [request.region] if request.region else None,
        "resources": _resources(request),
        "volumes": _volumes(request),
        "spot_policy": "spot" if request.spot else "on-demand",
        "retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": _RETRY},
        "max_duration": f"{max(1, round(request.hours * 3600))}s" if request.hours else None,
        "stop_criteria": "master-done" if request.num_hosts > 1 else None,
    }
    heading = [
        f"dstack: {count_of(request.num_hosts, 'host')}",
        *(["needs:      a fleet with `placement: cluster`"] if request.num_hosts > 1 else []),
        "hand in:    dstack apply -f FILE",
        f"end early:  dstack stop {request.name}",
        "give back:  dstack fleet delete FLEET   (idle machines end by themselves)",
    ]
    return to_yaml(heading, task)


def write_ssh_fleet(name: str, hosts: tuple[Host, ...]) -> str:
    """Machines that one has already. The key stays where it is: its path is named."""
    fleet = {
        "type": "fleet",
        "name": name,
        "placement": "cluster",
        "ssh_config": {"hosts": [_fleet_host(host) for host in hosts]},
    }
    heading = [
        f"dstack: a fleet of {count_of(len(hosts), 'host')} over ssh; each needs Docker",
        "hand in:    dstack apply -f FILE",
        f"give back:  dstack fleet delete {name}   (the hosts stay, dstack leaves them)",
    ]
    return to_yaml(heading, fleet)


def _fleet_host(host: Host) -> dict[str, Any]:
    return {
        "hostname": host.address,
        "port": host.port,
        "user": host.user,
        "identity_file": str(host.key) if host.key else None,
        "internal_ip": host.private_address if host.private_address != host.address else None,
    }


def _files(request: Request) -> list[str]:
    sent = [f"{path}:{CODE}/{name}" for name, path in request.sent_source().items()]
    return [*sent, *([".:project"] if request.sends_code else [])]


def _commands(request: Request) -> list[str]:
    words = request.pip_words(f"$PWD/{CODE}")
    install = [f"pip install --quiet {words}"] if words else []
    code = ["cd project"] if request.sends_code else []
    return [*install, *code, *request.setup, request.command_line]


def _resources(request: Request) -> dict[str, Any]:
    machine = request.machine
    gpu = {"name": machine.accelerator, "count": machine.num_accelerators}
    # Data loading and NCCL pass tensors through /dev/shm; a container's own 64 MB end a run.
    return {"gpu": gpu if machine.accelerator else None, "shm_size": "8GB"}


def _volumes(request: Request) -> list[Any] | None:
    if request.storage is None:
        return None
    if "://" in request.storage:
        raise UserError(
            f"dstack mounts volumes and directories of a host, not {request.storage}",
            "the name of a volume (`dstack volume`), or a directory that all hosts mount: /nfs",
        )
    if request.storage.startswith("/"):
        return [{"instance_path": request.storage, "path": MOUNT}]
    return [{"name": request.storage, "path": MOUNT}]
