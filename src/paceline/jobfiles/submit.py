"""Handing a job file to its engine's own command, and which command gives the machines back."""

import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import Say, UserError
from paceline.jobfiles.request import Request

Ask = Callable[[str], bool]
"""Puts a question to the user; whether the answer is yes."""


@dataclass(frozen=True)
class Engine:
    command: tuple[str, ...]
    """What hands the file in; FILE stands for its path."""
    give_back: str
    install: str
    """How to get the engine's command."""


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
    name = request.name
    if request.spot:
        managed = ("sky", "jobs", "launch", "--yes", "--name", name, "FILE")
        return Engine(managed, f"sky jobs cancel --name {name}", install)
    return Engine(
        ("sky", "launch", "--yes", "--cluster", name, "FILE"), f"sky down {name}", install
    )


def _dstack(request: Request) -> Engine:
    return Engine(
        ("dstack", "apply", "--yes", "--detach", "-f", "FILE"),
        f"dstack stop {request.name}, then: dstack fleet (idle machines cost until they end)",
        "pip install dstack, then: dstack project add",
    )


def _kubernetes(_request: Request) -> Engine:
    return Engine(
        ("kubectl", "apply", "-f", "FILE"),
        "kubectl delete -f FILE",
        "kubernetes.io/docs/tasks/tools; the cluster needs Kubeflow Trainer 2 or later",
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


def submit(engine: Engine, file: Path, ask: Ask, say: Say) -> int:
    """The engine's exit code; 0 as well where the user said no."""
    program = engine.command[0]
    if shutil.which(program) is None:
        raise UserError(
            f"`{program}` is not installed here, so nothing was handed in; the file is {file}",
            engine.install,
        )
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
