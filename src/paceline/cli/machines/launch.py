"""Verbs that write job files for batch systems and for engines that create machines."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.arguments import Parser, Verbs, count, say
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
    parser.add_argument("--hours", type=float, help="the longest that the job may take")
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
            "--parameter-servers", type=count, default=0, metavar="N", help="for a script of yours"
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
    request = _request(arguments, script)
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
        if arguments.parameter_servers and arguments.recipe:
            raise UserError(
                "Paceline's own tasks average gradients among equals and use no parameter servers",
                "leave --parameter-servers out, or run a script of yours after --",
            )
        return write_vertex(request, arguments.parameter_servers)
    writers = {"sky": write_sky, "dstack": write_dstack, "kubernetes": write_kubernetes}
    return writers[arguments.kind](request)


def _request(arguments: argparse.Namespace, script: list[str]) -> "Request":
    from paceline.jobfiles.request import Request, job_name, read_machine

    named = arguments.recipe or Path(script[0]).stem
    name = arguments.name or job_name(Path(named).stem)
    if name != job_name(name):
        raise UserError(
            f"'{name}' is no name for a job", f"small letters and dashes: {job_name(name)}"
        )
    run = _run_directory(arguments, name)
    machine = read_machine(arguments.type)
    num_procs = arguments.procs or machine.num_accelerators or None
    if script:
        words, sends_code = _script_words(script, run, arguments.procs), True
    else:
        words, sends_code = _recipe_words(arguments, run, num_procs)
    return Request(
        name,
        tuple(words),
        run,
        arguments.nodes,
        num_procs,
        machine,
        spot=arguments.spot,
        image=arguments.image,
        storage=arguments.storage,
        setup=tuple(arguments.setup),
        **_installation(arguments),
        hours=arguments.hours,
        region=arguments.region,
        sends_code=sends_code,
        group=getattr(arguments, "group", None),
    )


def _installation(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is asked for; or this very Paceline where its source is here, else its version."""
    import paceline
    from paceline.hosts.push import installed_extras

    asked = getattr(arguments, "install", None)
    source = Path(paceline.__file__).parents[2]
    if asked or (source / "pyproject.toml").is_file():
        return {"install": asked, "source": source, "extras": installed_extras()}
    return {"install": f"paceline=={paceline.__version__}"}


def _run_directory(arguments: argparse.Namespace, name: str) -> str:
    from paceline.jobfiles.request import MOUNT, UNSAVED
    from paceline.jobfiles.vertex import vertex_directory

    if arguments.run:
        return str(arguments.run)
    if arguments.storage and arguments.kind == "vertex":
        return f"{vertex_directory(arguments.storage)}/runs/{name}"
    if arguments.storage:
        return f"{MOUNT}/runs/{name}"
    say("no --storage is named: the run is on the machines' own disks, and ends with them")
    return f"{UNSAVED}/runs/{name}"


def _script_words(script: list[str], run: str, procs: int | None) -> list[str]:
    chosen = ["--procs", str(procs)] if procs else []
    return ["paceline", "run", "--run", run, *chosen, *script]


def _recipe_words(
    arguments: argparse.Namespace, run: str, num_procs: int | None
) -> tuple[list[str], bool]:
    """The command, and whether the recipe needs files from here."""
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.project import is_own
    from paceline.recipe import refuse_too_many_processes

    world = arguments.nodes * (num_procs or 1)
    settings = understand(arguments.recipe, arguments.settings, lambda _: world, say)
    loaded = recipe.load(arguments.recipe, settings)
    refuse_too_many_processes(loaded, world)
    words = ["paceline", "train", arguments.recipe, *settings, "--run", run]
    if arguments.procs:
        words += ["--procs", str(arguments.procs)]
    is_file = arguments.recipe not in recipe.shipped()
    if is_file and Path(arguments.recipe).is_absolute():
        raise UserError(
            f"{arguments.recipe} is a path of this machine, and the job runs on others",
            "start this command in the directory of the recipe and name it without that directory",
        )
    return words, is_file or is_own(loaded.workload)


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
