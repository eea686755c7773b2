"""Verbs that change hosts: from a bare image to ready, and storage that all of them see."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, Verbs, confirm, say
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.hosts.file import Host
    from paceline.hosts.steps import Step

    Plans = dict[Host, list[Step]]

_REFUSED = "refused"
"""Stands among the steps that were not done where the user has said no."""


def add_hosts_file(parser: Parser) -> None:
    parser.add_argument("--hosts", type=Path, metavar="FILE", help="default: hosts.yaml here")


def add_setup(inner: Verbs) -> None:
    setup = inner.add_parser("setup", help="bring all hosts from a bare image to ready")
    setup.add_argument("--no-env", action="store_true", help="do not send code and environment")
    setup.add_argument("--pip", default="", metavar="OPTIONS", help="more for pip: --pip='...'")
    setup.add_argument(
        "--mount",
        nargs=2,
        metavar=("STORAGE", "DIRECTORY"),
        help="shared storage as well, as `hosts mount` does it",
    )
    setup.add_argument(
        "--container",
        nargs="?",
        const="",
        metavar="IMAGE",
        help="train in a container: that of the hosts file, or this image with Docker",
    )
    _add_common(setup)
    setup.set_defaults(call=set_up_hosts)


def add_mount(inner: Verbs) -> None:
    mount = inner.add_parser("mount", help="shared storage on all hosts, now and after a restart")
    mount.add_argument("storage", help="nfs://SERVER/PATH, smb://, sshfs://USER@HOST/PATH, dir://")
    mount.add_argument("directory", help="where, on every host")
    _add_common(mount)
    mount.set_defaults(call=mount_on_hosts)


def _add_common(parser: Parser) -> None:
    parser.add_argument("--credentials", metavar="PATH", help="on every host: SMB's file, a key")
    add_hosts_file(parser)
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def set_up_hosts(arguments: argparse.Namespace) -> int:
    """Everything is shown and asked at once; what cannot be done does not keep back the rest."""
    from paceline.hosts.file import load_hosts
    from paceline.hosts.push import Order, send_all
    from paceline.hosts.setup import NEEDED_FOR_ENVIRONMENT

    hosts = _with_containers(load_hosts(arguments.hosts).hosts, arguments.container)
    plans = _setup_plans(hosts)
    if arguments.mount:
        mounting = _mount_plans(hosts, arguments, *arguments.mount)
        plans = {host: [*steps, *mounting[host]] for host, steps in plans.items()}
    not_done = _bring_to(plans, arguments.yes)
    if _REFUSED in not_done:
        return 1
    code = 1 if not_done else 0
    if arguments.mount and "mount" not in not_done:
        code = max(code, _see_if_shared(hosts, arguments.mount[1].rstrip("/")))
    if any(host.container for host in hosts):
        _say_container(hosts, arguments.container)
    elif not arguments.no_env and not NEEDED_FOR_ENVIRONMENT & not_done:
        code = max(code, send_all(tuple(hosts), Order(pip_options=arguments.pip), say))
    return code


def _setup_plans(hosts: "Sequence[Host]") -> "Plans":
    from paceline.hosts.setup import container_steps, setup_steps

    by_container = {
        container: setup_steps() if container is None else container_steps(container)
        for container in dict.fromkeys(host.container for host in hosts)
    }
    return {host: by_container[host.container] for host in hosts}


def _with_containers(hosts: "Sequence[Host]", image: str | None) -> "list[Host]":
    """The hosts with the containers that are wanted: by the hosts file, or by an option."""
    from dataclasses import replace

    from paceline.hosts.container import Container, check_image

    if image:
        wanted = Container(check_image(image))
        return [replace(host, container=host.container or wanted) for host in hosts]
    without = [host.name for host in hosts if host.container is None]
    if image is not None and without:
        raise UserError(
            f"the hosts file names no container for {', '.join(without)}",
            "add `container: {image: NAME}` to it, or name the image: --container NAME",
        )
    return list(hosts)


def _say_container(hosts: "Sequence[Host]", image: str | None) -> None:
    if image:
        say(f"for the hosts file: container: {{image: {image}}}")
    if any("/" in host.python for host in hosts):
        say("`python:` in the hosts file is looked for in the container; without it: python3")


def mount_on_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts

    hosts = load_hosts(arguments.hosts).hosts
    plans = _mount_plans(hosts, arguments, arguments.storage, arguments.directory)
    if _bring_to(plans, arguments.yes):
        return 1
    return _see_if_shared(hosts, arguments.directory.rstrip("/"))


def _mount_plans(
    hosts: "Sequence[Host]", arguments: argparse.Namespace, storage: str, directory: str
) -> "Plans":
    from paceline.hosts.mount import mount_steps, read_storage, refuse_other_mounts

    read, place = read_storage(storage, arguments.credentials), directory.rstrip("/")
    plans: Plans = {host: mount_steps(read.on(host), place) for host in hosts}
    refuse_other_mounts(hosts, read, place)
    return plans


def _see_if_shared(hosts: "Sequence[Host]", directory: str) -> int:
    from paceline.hosts.mount import find_not_shared

    if apart := find_not_shared(hosts, directory):
        say(f"{', '.join(apart)}: {directory} is mounted, but has other files than {hosts[0].name}")
        return 1
    say(f"all {len(hosts)} hosts see the same files in {directory}")
    return 0


def _bring_to(plans: "Plans", is_agreed: bool) -> set[str]:
    """Names of the steps that are not done in the end; nothing is done before it is shown and
    agreed."""
    from paceline.hosts.steps import apply_todos, describe, find_todos
    from paceline.terminal import printable

    todos = find_todos(plans)
    if not todos:
        wanted = dict.fromkeys(step.name for steps in plans.values() for step in steps)
        say(f"nothing to do on {len(plans)} hosts: {', '.join(wanted)}")
        return set()
    say(f"to do:\n{printable(describe(todos))}")
    if any(todo.step.apply for todo in todos) and not (
        is_agreed or confirm("do this on these hosts?", "add --yes")
    ):
        say("nothing was done")
        return {_REFUSED}
    failed = apply_todos(todos, say)
    if failed:
        names = ", ".join(dict.fromkeys(f"{t.host.name}: {t.step.name}" for t in failed))
        say(f"not done: {names}. Put it right; the same command goes on from there")
    return {todo.step.name for todo in failed}
