"""What a tracker can do here, and opening the run that belongs to a run directory.

Which run that is: the one the user names, else the one that the tracker's own environment names
(WANDB_RUN_ID, MLFLOW_RUN_ID), else the one that was used for this run directory before, else a new
one. It is noted in `trackers.json`, so that training, a restart and the report meet in one place.
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.errors import UserError
from paceline.files import write_whole

NAMES = ("wandb", "trackio", "mlflow")
PROJECT = "paceline"
"""Where a new run goes unless the tracker's environment says otherwise."""
_FILE = "trackers.json"
_PACKAGES = {"wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow-skinny"}


class Tracker(Protocol):
    run: str
    """What names the run in the tracker."""
    place: str
    """Where a person finds it."""

    def add_scalars(self, values: Mapping[str, float], step: int) -> None: ...

    def add_report(self, values: Mapping[str, float | str], page: str) -> None:
        """Figures and words under their names, and the HTML page."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Wanted:
    """A run in a tracker."""

    title: str
    """Of a new one."""
    run: str | None
    """That is there already; None makes a new one unless the environment names one."""
    going_on: bool
    """It is being trained: its end is told by `close`."""


def open_tracker(
    name: str, directory: Path, run: str | None = None, going_on: bool = False
) -> Tracker:
    module = _import(name)
    noted = _noted(directory)
    wanted = Wanted(directory.resolve().name, run or noted.get(name), going_on)
    tracker: Tracker = module.open_run(wanted, is_named=run is not None)
    if noted.get(name) != tracker.run:
        write_whole(directory / _FILE, json.dumps({**noted, name: tracker.run}) + "\n")
    return tracker


def _import(name: str) -> "_Module":
    if name not in NAMES:
        raise UserError(f"{name!r} is no tracker", f"one of {', '.join(NAMES)}")
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{name} is not installed ({error})", f"pip install {_PACKAGES[name]}"
        ) from error
    module: _Module = importlib.import_module(f"paceline.trackers.{name}_run")
    return module


class _Module(Protocol):
    def open_run(self, wanted: Wanted, is_named: bool) -> Tracker: ...


def _noted(directory: Path) -> dict[str, str]:
    try:
        content = json.loads((directory / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = content if isinstance(content, dict) else {}
    return {name: run for name, run in known.items() if name in NAMES and isinstance(run, str)}
