"""Verbs that write job files for batch systems and for engines that create machines."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, Verbs, count, hours, say
from paceline.cli.machines.job_request import make_request
from paceline.cli.machines.slurm import add_slurm, hand_in, launch_slurm, write_new
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.jobfiles.request import Request

_KINDS = {
    "slurm": "a script for sbatch that goes on after an end",
    "sky": "a SkyPilot task: some twenty clouds, or your own hosts",
    "dstack": "a dstack task",
    "kubernetes": "a TrainJob of Kubeflow Trainer 2, with its runtime",
    "vertex": "a custom job of Vertex AI",
}
_STORAGE = {
    "sky": "a bucket (s3://NAME, gs://NAME) or the name of a volume",
    "dstack": "the name of a volume, or a directory that all hosts mount",
    "kubernetes": "the name of a persistent volume claim (ReadWriteMany)",
    "vertex": "gs://BUCKET, or nfs://ADDRESS/PATH",
}
_ABOUT = "Write a job file for a recipe, or for a script of yours after `--`. Nothing is started."


def add_launch(verbs: Verbs) -> None:
    launch = verbs.add_parser("launch", help="job files: Slurm, SkyPilot, dstack, Kubernetes, ...")
    metavar = "|".join([*_KINDS, "import"])
    kinds = launch.add_subparsers(dest="kind", metavar=metavar, required=True, parser_class=Parser)
    for kind, text in _KINDS.items():
        parser = kinds.add_parser(kind, help=text, description=_ABOUT)
        _add_common(parser)
        add_slurm(parser) if kind == "slurm" else _add_machines(parser, kind)
    _add_import(kinds)


def _add_common(parser: Parser) -> None:
    parser.add_argument("recipe", nargs="?", help="name, or path of a YAML file")
    parser.add_argument("settings", nargs="*", metavar="name=value")
    parser.add_argument("--run", type=Path, help="run directory on storage that all hosts share")
    parser.add_argument("--hosts", "--nodes", type=count, default=1, dest="nodes", metavar="N")
    parser.add_argument("--procs", type=count, help="processes per host (default: one per GPU)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write here (default: print)")
    parser.add_argument("--submit", action="store_true", help="show, ask, and hand it in")
    parser.set_defaults(call=launch_job)


def _add_machines(parser: Parser, kind: str) -> None:
    parser.add_argument("--type", help="machine: g4dn.2xlarge, A100:8, n1-standard-8+T4:1")
    parser.add_argument("--spot", action="store_true", help="cheaper machines that may be taken")
    parser.add_argument("--storage", help=_STORAGE[kind])
    parser.add_argument("--image", help="container image with Paceline inside (docs/containers.md)")
    parser.add_argument("--region", help="where (SkyPilot: cloud/region)")
    parser.add_argument("--hours", type=hours, help="the longest that the job may take")
    parser.add_argument("--name", help="of the job (default: the recipe's or script's)")
    parser.add_argument(
        "--setup", action="append", default=[], metavar="COMMAND", help="run first on every host"
    )
    if kind in ("sky", "dstack"):
        parser.add_argument("--install", help="for pip (default: this Paceline is sent along)")
    if kind == "sky":
        parser.add_argument("--group", help="security group of AWS (`paceline cloud group`)")
    if kind == "dstack":
        parser.add_argument(
            "--fleet", type=Path, metavar="HOSTS", help="write a fleet of the hosts in this file"
        )
    if kind == "vertex":
        parser.add_argument(
            "--parameter-servers", type=count, default=0, metavar="N", help="besides --hosts"
        )


def _add_import(kinds: Verbs) -> None:
    parser = kinds.add_parser("import", help="an old AI Platform config.yaml as a Vertex AI job")
    parser.add_argument("file", type=Path, help="AI Platform's config.yaml")
    parser.add_argument("--image", help="container, where the file names none")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write here (default: print)")
    parser.set_defaults(call=import_job)


def split_script(words: list[str]) -> tuple[list[str], list[str]]:
    """What follows `--` is a script of the user's with its own arguments."""
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def launch_job(arguments: argparse.Namespace) -> int:
    script: list[str] = getattr(arguments, "script", [])
    if getattr(arguments, "fleet", None):
        return _write_fleet(arguments)
    if bool(script) == bool(arguments.recipe):
        raise UserError(
            "a job trains a recipe or runs a script, one of them",
            f"paceline launch {arguments.kind} RECIPE, or ... -- train.py --its --options",
        )
    if arguments.kind == "slurm":
        return launch_slurm(arguments, script)
    request = make_request(arguments, script)
    return _deliver(arguments, _write(arguments, request), request)


def _write_fleet(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.jobfiles.dstack import write_ssh_fleet

    text = write_ssh_fleet(arguments.name or "hosts", load_hosts(arguments.fleet).hosts)
    return _print_or_write(arguments.to, text)


def _print_or_write(path: Path | None, text: str) -> int:
    if path is None:
        print(text, end="")
        return 0
    write_new(path, text)
    say(f"wrote {path}; its first lines say how to hand it in and how to give machines back")
    return 0


def _write(arguments: argparse.Namespace, request: "Request") -> str:
    from paceline.jobfiles.dstack import write_dstack
    from paceline.jobfiles.kubernetes import write_kubernetes
    from paceline.jobfiles.sky import write_sky
    from paceline.jobfiles.vertex import write_vertex

    if arguments.kind == "vertex":
        return write_vertex(request, arguments.parameter_servers)
    writers = {"sky": write_sky, "dstack": write_dstack, "kubernetes": write_kubernetes}
    return writers[arguments.kind](request)


def _deliver(arguments: argparse.Namespace, text: str, request: "Request") -> int:
    if not arguments.submit:
        return _print_or_write(arguments.to, text)
    path = arguments.to or Path(f"{request.name}.{_ending(arguments.kind)}")
    return hand_in(arguments.kind, request, path, text)


def _ending(kind: str) -> str:
    return "dstack.yml" if kind == "dstack" else f"{kind}.yaml"


def import_job(arguments: argparse.Namespace) -> int:
    from paceline.jobfiles.ai_platform import import_config

    return _print_or_write(arguments.to, import_config(arguments.file, arguments.image, say))
