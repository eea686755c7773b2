"""`paceline run --hosts`: a user's script on the hosts of a file."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, say

if TYPE_CHECKING:
    from paceline.hosts.file import HostsFile
    from paceline.launch.script.hosts import ScriptOnHosts
    from paceline.launch.script.project import ScriptProject


def add_host_options(run: Parser) -> None:
    hosts = run.add_argument_group("on several hosts")
    hosts.add_argument(
        "--hosts", type=Path, metavar="FILE", help="run it on the hosts of this file, over ssh"
    )
    hosts.add_argument(
        "--push", action="store_true", help="first send the script's folder to the hosts"
    )
    hosts.add_argument(
        "--restarts",
        type=_natural,
        default=0,
        metavar="N",
        help="start the script again after a fault, at most so often (default: never)",
    )
    hosts.add_argument(
        "--hang-timeout",
        type=_natural,
        default=300,
        metavar="SECONDS",
        help="end a script in which nothing moves for so long (default: 300; 0 is never)",
    )


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 on")
    return int(text)


def run_script_on_hosts(arguments: argparse.Namespace, words: list[str]) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.launch.remote.campaign import run_on_hosts
    from paceline.launch.script.project import find_project
    from paceline.terminal import outlive_terminal

    outlive_terminal()
    project = find_project(words, Path.cwd())
    hosts_file = load_hosts(arguments.hosts)
    program = _program(arguments, project)
    if arguments.detach:
        return _detach(program)
    if arguments.push:
        _push(project, hosts_file)
    return run_on_hosts(program, hosts_file, say)


def _program(arguments: argparse.Namespace, project: "ScriptProject") -> "ScriptOnHosts":
    from paceline.launch.script.hosts import ScriptOnHosts
    from paceline.record.schema import RunDirectory

    path = arguments.run or Path("runs") / Path(project.script).stem
    return ScriptOnHosts(
        project,
        RunDirectory(path.absolute()),
        arguments.procs or 0,
        shlex.join(["paceline", *sys.argv[1:]]),
        arguments.restarts,
        arguments.hang_timeout,
    )


def _detach(program: "ScriptOnHosts") -> int:
    from paceline.launch import jobs

    words = list(sys.argv[1:])
    words.remove("--detach")
    return jobs.detach(words, program.run, say)


def _push(project: "ScriptProject", hosts_file: "HostsFile") -> None:
    from paceline.errors import UserError
    from paceline.hosts.push import pack_project, push_project

    num_failed = push_project(hosts_file.hosts, pack_project(project.root), say)
    if num_failed:
        raise UserError(
            f"{project.root} could not be sent to {num_failed} of the hosts",
            "put right what is said above; `paceline hosts check` looks closer",
        )
