"""`paceline run --hosts`: a user's script on the hosts of a file."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, say
from paceline.cli.run_json import write_no_run, write_run_json

if TYPE_CHECKING:
    from paceline.hosts.file import HostsFile
    from paceline.launch.script.remote.program import ScriptOnHosts
    from paceline.launch.script.remote.project import ScriptProject
    from paceline.record.schema import RunDirectory


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


def run_script_on_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.launch.remote.campaign import run_on_hosts
    from paceline.launch.script.remote.project import find_project

    hosts_file = load_hosts(arguments.hosts)
    project = find_project(arguments.command, Path.cwd())
    program = _program(arguments, project)
    if arguments.detach:
        return run_detached(program.run)
    if arguments.push:
        _push(project, hosts_file)
    code = run_on_hosts(program, hosts_file, say)
    if arguments.json is not None:
        if any(program.run.events.glob("rank-*.jsonl")):
            write_run_json(program.run.path, arguments.json)
        else:
            write_no_run(code, "no training step was seen on the hosts", arguments.json)
    return code


def refuse_unfit_options(arguments: argparse.Namespace) -> None:
    from paceline.errors import UserError

    if arguments.hosts is None:
        if arguments.push or arguments.restarts:
            option = "--push" if arguments.push else "--restarts"
            raise UserError(f"{option} is for hosts", f"name them: --hosts FILE {option} ...")
    elif arguments.is_whole:
        raise UserError(
            "with --hosts Paceline starts the processes of a script itself, and no other command",
            "name the script alone: paceline run --hosts FILE train.py ...",
        )
    elif arguments.python is not None:
        raise UserError(
            "with --hosts the hosts file says which Python each host has",
            "set 'python' there, for all hosts or for one",
        )


def _program(arguments: argparse.Namespace, project: "ScriptProject") -> "ScriptOnHosts":
    from dataclasses import replace

    from paceline.launch.script.claim import choose_run
    from paceline.launch.script.remote.program import ScriptOnHosts
    from paceline.record.schema import RunDirectory

    program = ScriptOnHosts(
        project,
        RunDirectory(arguments.run.absolute() if arguments.run else Path()),
        arguments.procs or 0,
        shlex.join(["paceline", *sys.argv[1:]]),
        arguments.restarts,
        arguments.hang_timeout,
    )
    return program if arguments.run else replace(program, run=choose_run(None, program.started_as))


def run_detached(run: "RunDirectory") -> int:
    """The same command again, in a session of its own and with its run directory named."""
    from paceline.launch import jobs

    words = list(sys.argv[1:])
    words.remove("--detach")
    named = [] if "--run" in words or any(w.startswith("--run=") for w in words) else ["--run"]
    return jobs.detach(["run", *([*named, str(run.path)] if named else []), *words[1:]], run, say)


def _push(project: "ScriptProject", hosts_file: "HostsFile") -> None:
    from paceline.errors import UserError
    from paceline.hosts.push import pack_project, push_project

    num_failed = push_project(hosts_file.hosts, pack_project(project.root), say)
    if num_failed:
        raise UserError(
            f"{project.root} could not be sent to {num_failed} of the hosts",
            "put right what is said above; `paceline hosts check` looks closer",
        )
