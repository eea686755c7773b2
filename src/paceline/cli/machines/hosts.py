"""Verbs about many machines: the hosts file, the doctor, and the practice cluster."""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, Verbs, count, say
from paceline.cli.machines.setup import add_hosts_file, add_mount, add_setup
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.doctor.examination import Diagnosis

_IMPORTS = ["aws", "gcloud", "ibmcloud", "plain", "slurm", "mpi"]


def add_hosts(verbs: Verbs) -> None:
    hosts = verbs.add_parser(
        "hosts", help="the machines of a run: import, log in, run, push, check"
    )
    inner = hosts.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    _add_import(inner)
    ssh = inner.add_parser("ssh", help="a shell on one host")
    add_hosts_file(ssh)
    ssh.add_argument("host", help="its name, or its number in the file from 0 on")
    ssh.add_argument("command", nargs="*", help="instead of a shell")
    ssh.set_defaults(call=ssh_to_host)
    run = inner.add_parser("run", help="a command on all hosts at once")
    add_hosts_file(run)
    run.add_argument("command", nargs="+", help="after --, the command and its arguments")
    run.set_defaults(call=run_on_hosts)
    _add_push(inner)
    _add_check(inner)
    add_setup(inner)
    add_mount(inner)


def _add_import(inner: Verbs) -> None:
    imports = inner.add_parser("import", help="write a hosts.yaml from what other tools print")
    imports.add_argument("kind", choices=_IMPORTS, help="which tool")
    imports.add_argument("file", nargs="?", help="its output (- or nothing: standard input)")
    imports.add_argument("--user", help="login name on all hosts")
    imports.add_argument("--key", help="private key file for all hosts")
    imports.add_argument("--python", help="Python on all hosts")
    imports.add_argument("--data", help="data cache on all hosts")
    imports.set_defaults(call=import_hosts)


def _add_push(inner: Verbs) -> None:
    push = inner.add_parser("push", help="send this code and its environment to all hosts")
    add_hosts_file(push)
    push.add_argument(
        "--to", default="paceline-host", help="directory there (default: ~/paceline-host)"
    )
    push.add_argument(
        "--project",
        type=Path,
        metavar="DIR",
        help="your own code (default: here, where a recipe names a task of yours)",
    )
    push.add_argument("--no-env", action="store_true", help="send only the code")
    push.add_argument("--python", default="python3", help="Python that makes the environment")
    push.add_argument("--pip", default="", metavar="OPTIONS", help="more for pip: --pip='...'")
    push.set_defaults(call=push_to_hosts)


def _add_check(inner: Verbs) -> None:
    check = inner.add_parser("check", help="the doctor: all that must be right before a run")
    add_hosts_file(check)
    check.add_argument("recipe", nargs="?", help="check for this recipe: its data and sizes")
    check.add_argument("settings", nargs="*", metavar="name=value", help="settings of the recipe")
    check.add_argument("--run", type=Path, help="run directory (default: runs/RECIPE)")
    check.add_argument("--quick", action="store_true", help="do not measure bandwidth")
    check.set_defaults(call=check_hosts)


def add_lab(verbs: Verbs) -> None:
    lab = verbs.add_parser("lab", help="a practice cluster on this machine (Linux, root)")
    inner = lab.add_subparsers(dest="action", metavar="up|down", required=True, parser_class=Parser)
    up = inner.add_parser("up", help="start it, and print where its hosts file is")
    up.add_argument("--hosts", type=count, default=2, help="how many (default: 2)")
    up.add_argument("--link", help="speed of each host's link, like 1Gbit (default: no limit)")
    up.set_defaults(call=lab_up)
    down = inner.add_parser("down", help="end it and delete all but the runs in its directories")
    down.add_argument("--delete-runs", action="store_true", help="delete these as well")
    down.set_defaults(call=lab_down)
    for parser in (up, down):
        parser.add_argument("--dir", type=Path, help="where its files are (default: your state)")


def import_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts import importing as hosts_import

    shared = {name: getattr(arguments, name) for name in ("user", "key", "python", "data")}
    shared = {name: value for name, value in shared.items() if value is not None}
    text = _import_text(arguments.kind, arguments.file)
    print(hosts_import.import_hosts(arguments.kind, text, shared, say), end="")
    return 0


def _import_text(kind: str, file: str | None) -> str:
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if kind == "slurm" and file is None and nodes:
        return nodes
    if file is None and sys.stdin.isatty():
        raise UserError(
            "no file is named" if kind != "slurm" else "this is no Slurm allocation",
            f"paceline hosts import {kind} FILE",
        )
    try:
        return sys.stdin.read() if file in (None, "-") else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {error}", "check the path") from error


def ssh_to_host(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import find_host, load_hosts
    from paceline.hosts.ssh import ssh_command

    host = find_host(load_hosts(arguments.hosts), arguments.host)
    command = ssh_command(host, arguments.command, tty=sys.stdin.isatty())
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606  (the terminal belongs to ssh from here on)


def run_on_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import Host, load_hosts
    from paceline.hosts.ssh import follow, on_all
    from paceline.terminal import printable_output

    hosts = load_hosts(arguments.hosts).hosts
    width = max(len(host.name) for host in hosts)
    printing = threading.Lock()

    def on_one(host: Host) -> int:
        def show(line: str) -> None:
            with printing:
                print(f"{f'[{host.name}]':<{width + 2}} {printable_output(line)}", flush=True)

        code = follow(host, arguments.command, show)
        if code:
            show(f"exit code {code}")
        return code

    return max(on_all(hosts, on_one))


def push_to_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.hosts.push import Order, send_all

    order = Order(arguments.to, not arguments.no_env, arguments.python, arguments.pip)
    return send_all(load_hosts(arguments.hosts).hosts, order, say, arguments.project)


def check_hosts(arguments: argparse.Namespace) -> int:
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.doctor import examination as doctor
    from paceline.hosts.file import load_hosts

    hosts_file = load_hosts(arguments.hosts)
    loaded = None
    if arguments.recipe:
        settings = understand(arguments.recipe, arguments.settings, lambda _: None, say)
        loaded = recipe.load(arguments.recipe, settings)
    default_run = Path("runs") / Path(arguments.recipe).stem if arguments.recipe else None
    purpose = doctor.Purpose(loaded, arguments.run or default_run, arguments.quick)
    diagnosis = doctor.check(hosts_file, purpose, say)
    _print_diagnosis(diagnosis)
    return 0 if diagnosis.is_healthy else 1


def _print_diagnosis(diagnosis: "Diagnosis") -> None:
    from paceline.doctor import examination as doctor
    from paceline.doctor.rows import print_rows
    from paceline.terminal import can_redraw, console_of, printable

    if not can_redraw(sys.stdout):
        print(printable(doctor.render(diagnosis)))
        return
    print_rows(diagnosis.rows, console_of(sys.stdout))
    print(printable(f"\n{doctor.render_verdict(diagnosis)}"))


def lab_up(arguments: argparse.Namespace) -> int:
    from paceline.lab import cluster as lab

    directory = arguments.dir or lab.default_directory()
    path = lab.up(arguments.hosts, arguments.link, directory, say)
    print(path)
    say(f"try: paceline hosts check --hosts {path}")
    return 0


def lab_down(arguments: argparse.Namespace) -> int:
    from paceline.lab import cluster as lab

    directory = arguments.dir or lab.default_directory()
    lab.down(directory, say, keeps_runs=not arguments.delete_runs)
    return 0
