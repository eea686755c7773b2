"""`paceline.train`: a run of its own processes, which outlives the notebook that started it."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paceline import config
from paceline.api.run import Run, as_error
from paceline.errors import UserError
from paceline.launch import jobs
from paceline.record.directory import is_being_trained
from paceline.record.schema import RunDirectory
from paceline.record.writer import prepare_directory, write_file
from paceline.tasks.contract import Task

_LOOK_SECONDS = 0.05


def train(
    recipe: str | Path | type[Task],
    *,
    run: str | Path | None = None,
    procs: int | None = None,
    hosts: str | Path | None = None,
    roles: str | None = None,
    wait: bool = True,
    **settings: Any,
) -> Run:
    """Train, or go on with a run, as `paceline train` does; returns the run when it is over.

    `recipe` is a name, a YAML file, or a task of yours. Settings are those of the recipe:
    `steps=200`, `batch={"global": 64, "micro": 32}`, `**{"schedule.rate": 0.1}`. `roles` are those
    of parameter servers, "chief=1,worker=3,server=2". The processes live
    on without this one: after a restart of the kernel `paceline.open(run)` finds the run. With
    `wait=False` it returns as soon as the run has begun.
    """
    name = recipe.__name__.lower() if isinstance(recipe, type) else Path(recipe).stem
    files = RunDirectory(Path(run) if run is not None else Path("runs") / name)
    words = ["train", _recipe_word(recipe, files), *_overrides(settings), "--run", str(files.path)]
    words += ["--procs", str(procs)] if procs is not None else []
    words += ["--hosts", str(hosts)] if hosts is not None else []
    words += ["--roles", roles] if roles is not None else []
    started = jobs.start_apart(words, files)
    while started.process.poll() is None and not is_being_trained(files):
        time.sleep(_LOOK_SECONDS)
    if started.process.poll() is not None and started.process.returncode:
        raise as_error(started.said())
    while not files.exists() and started.process.poll() is None:
        time.sleep(_LOOK_SECONDS)
    if wait:
        _wait(Run(files.path), started)
    return Run(files.path)


def _wait(run: Run, started: jobs.Started) -> None:
    run.follow(lambda: started.process.poll() is not None)
    code = started.process.poll()
    if code is not None and 0 < code < 128:  # above it was asked to stop
        raise as_error(started.said())
    if code is not None and code < 0:
        raise UserError(
            f"the run was killed (signal {-code})", "the same call goes on from its last checkpoint"
        )


def _recipe_word(recipe: str | Path | type[Task], files: RunDirectory) -> str:
    """A task alone is a recipe with nothing but its name: settings give the rest."""
    if not isinstance(recipe, type):
        return str(recipe)
    if recipe.__module__ == "__main__":
        raise UserError(
            f"{recipe.__name__} is written in this notebook or script, where the processes that "
            "train cannot import it",
            "put it into a file (%%writefile my_task.py in a notebook) and import it from there",
        )
    prepare_directory(files.path)
    asked = files.path / f"{recipe.__name__.lower()}.yaml"
    write_file(asked, config.to_yaml({"workload": f"{recipe.__module__}:{recipe.__qualname__}"}))
    return str(asked)


def _overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _overrides(value, f"{prefix}{name}.")
        else:
            plain = str(value) if isinstance(value, Path) else value
            yield f"{prefix}{name}={json.dumps(plain)}"
