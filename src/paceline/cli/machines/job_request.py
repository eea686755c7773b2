"""From the words of `paceline launch` to what is asked of an engine, and what is said meanwhile."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.arguments import say
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.jobfiles.request import Request
    from paceline.settings import Recipe

_SENDS_FILES = ("sky", "dstack")
"""Engines that put the user's directory on the machines; with the others the image has it."""

_HAS_NO_PLACE = {
    ("sky", "hours"): (
        "SkyPilot has no time limit for a job",
        "leave --hours out: how long a run is, steps= or epochs= says, and its machines end soon "
        "after it",
    ),
    ("kubernetes", "region"): (
        "a Kubernetes cluster is where it is",
        "leave --region out; `kubectl config use-context` chooses the cluster",
    ),
}
"""Options that an engine has nothing for, which must not be passed over in silence."""


def make_request(arguments: argparse.Namespace, script: list[str]) -> "Request":
    from paceline.jobfiles.request import Request, read_machine

    _refuse_options_without_a_place(arguments)
    name = _name(arguments, script)
    run = _run_directory(arguments, name)
    machine = read_machine(arguments.type)
    num_procs = arguments.procs or machine.num_accelerators or None
    if arguments.kind == "kubernetes" and machine.accelerator and machine.type is None:
        say(
            f"the pods get GPUs of any kind: where nodes differ, choose those with "
            f"{machine.accelerator} by a nodeSelector in the file (`kubectl get nodes "
            "--show-labels`), or name a type of nodes with --type TYPE+GPU:N"
        )
    if script:
        _check_script(arguments.kind, script)
        # One process alone needs no launcher; more are started as torchrun does it.
        procs = arguments.procs or (num_procs if (num_procs or 1) > 1 else None)
        words, sends_code = _script_words(script, run, procs), True
    else:
        words, sends_code = _recipe_words(arguments, run, num_procs)
    if sends_code and arguments.kind not in _SENDS_FILES:
        say(f"nothing is sent along: the image must hold {script[0] if script else 'your files'}")
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


def _refuse_options_without_a_place(arguments: argparse.Namespace) -> None:
    for (kind, option), message in _HAS_NO_PLACE.items():
        if kind == arguments.kind and getattr(arguments, option) is not None:
            raise UserError(*message)


def _name(arguments: argparse.Namespace, script: list[str]) -> str:
    from paceline.jobfiles.request import job_name

    named = arguments.recipe or script[1 if script[0] == "-m" and len(script) > 1 else 0]
    name: str = arguments.name or job_name(Path(named).stem)
    if name != job_name(name):
        raise UserError(
            f"'{name}' is no name for a job", f"small letters and dashes: {job_name(name)}"
        )
    return name


def _check_script(kind: str, script: list[str]) -> None:
    """Where files are sent along, the script must be among them."""
    from paceline.launch.script.command import refuse_no_script

    path = Path(script[0])
    if kind not in _SENDS_FILES or script[0] == "-m":
        return
    refuse_no_script(path)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(
            f"{path} is a path of this machine, and the job runs on others",
            "start this command in the directory of the script, which is sent along",
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
    if getattr(arguments, "parameter_servers", 0):
        settings = [s for s in settings if not s.startswith("strategy=")]
        settings.append("strategy=parameter-server")
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
    own = is_own(loaded.workload)
    if not own:
        _say_data(arguments, loaded)
    return words, is_file or own


def _say_data(arguments: argparse.Namespace, recipe: "Recipe") -> None:
    """Machines that were created a moment ago have no data, and a run would end at once."""
    has_it = str(recipe.data).startswith("/") or any("paceline data" in s for s in arguments.setup)
    if not has_it:
        say(
            f"the machines need the data '{recipe.data}': --setup 'paceline data "
            f"{recipe.workload} --from ...' prepares it on each of them before the run"
        )
