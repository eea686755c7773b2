"""Handing a job file to its engine's own command, and which command gives the machines back."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import Say, UserError
from paceline.jobfiles.request import Request
from paceline.jobfiles.sky import sky_command

_FIND_SECONDS = 60
_OVER = ("done", "failed", "terminated")
"""States of a dstack run whose name may be used again."""
Ask = Callable[[str], bool]
"""Puts a question to the user; whether the answer is yes."""


@dataclass(frozen=True)
class Engine:
    command: tuple[str, ...]
    """What hands the file in; FILE stands for its path."""
    give_back: str
    install: str
    """How to get the engine's command."""
    find: tuple[str, ...] = ()
    """Asks whether there is such a job already: some engines would end it for the new one."""
    is_taken: Callable[[Any], bool] = bool
    """By the JSON that this answers with."""


def engine_of(kind: str, request: Request) -> Engine:
    makers = {
        "slurm": _slurm,
        "sky": _sky,
        "dstack": _dstack,
        "kubernetes": _kubernetes,
        "vertex": _vertex,
    }
    return makers[kind](request)


def _slurm(request: Request) -> Engine:
    return Engine(
        ("sbatch", "FILE"),
        f"scancel --name=paceline-{request.name}",
        "Slurm comes with the cluster: log in to one of its hosts",
    )


def _sky(request: Request) -> Engine:
    install = "pip install 'skypilot[aws]' (or gcp, azure, ...), then: sky check"
    name, command = request.name, tuple(sky_command(request))
    if request.spot:
        return Engine(command, f"sky jobs cancel --name {name}", install)
    clusters_only = ("--no-show-managed-jobs", "--no-show-services", "--no-show-pools")
    find = ("sky", "status", name, *clusters_only, "--output", "json")
    return Engine(command, f"sky down {name}", install, find)


def _dstack(request: Request) -> Engine:
    return Engine(
        ("dstack", "apply", "--yes", "--detach", "-f", "FILE"),
        f"dstack stop {request.name}, then: dstack fleet (idle machines cost until they end)",
        "pip install dstack, then: dstack project add",
        ("dstack", "run", "get", request.name, "--json"),
        lambda run: run.get("status") not in _OVER,
    )


def _kubernetes(request: Request) -> Engine:
    return Engine(
        ("kubectl", "apply", "-f", "FILE"),
        "kubectl delete -f FILE",
        "kubernetes.io/docs/tasks/tools; the cluster needs Kubeflow Trainer 2 or later",
        ("kubectl", "get", "trainjobs.trainer.kubeflow.org", request.name, "--output=json"),
    )


def _vertex(request: Request) -> Engine:
    if request.region is None:
        raise UserError("Vertex AI must know the region", "add --region us-central1")
    words = ("gcloud", "ai", "custom-jobs", "create", f"--region={request.region}")
    return Engine(
        (*words, f"--display-name={request.name}", "--config=FILE"),
        f"gcloud ai custom-jobs list --region={request.region} --filter=displayName="
        f"{request.name}, then: gcloud ai custom-jobs cancel JOB --region={request.region}",
        "cloud.google.com/sdk, then: gcloud auth login",
    )


def refuse_taken_name(engine: Engine) -> None:
    """Where the engine cannot be asked, its own command will say why."""
    if not engine.find:
        return
    try:
        asked = subprocess.run(
            engine.find, capture_output=True, text=True, check=True, timeout=_FIND_SECONDS
        )
        found = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    if engine.is_taken(found):
        raise UserError(
            f"the name is taken: `{shlex.join(engine.find)}` finds it, so nothing was handed in",
            f"another one with --name; or end the other one first: {engine.give_back}",
        )


def submit(engine: Engine, file: Path, ask: Ask, say: Say) -> int:
    """The engine's exit code; 0 as well where the user said no."""
    program = engine.command[0]
    if shutil.which(program) is None:
        raise UserError(
            f"`{program}` is not installed here, so nothing was handed in; the file is {file}",
            engine.install,
        )
    refuse_taken_name(engine)
    words = [word.replace("FILE", str(file)) for word in engine.command]
    give_back = engine.give_back.replace("FILE", shlex.quote(str(file)))
    if not ask(f"hand it in with `{shlex.join(words)}`? this may cost money"):
        say(f"nothing was handed in; the file is {file}")
        return 0
    code = subprocess.run(words, check=False).returncode
    if code:
        say(f"`{program}` ended with code {code}: its own message is above")
    say(f"to give the machines back: {give_back}")
    return code
