"""What every check works with: devices, a scratch folder, small recipes, and their data."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from paceline import config, recipe
from paceline.arguments import Parser
from paceline.data.places import data_directory, stand_in_name
from paceline.errors import UserError
from paceline.machine.arithmetic import Capability, precisions_of
from paceline.order import WorkerOrder
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.record.writer import write_file
from paceline.settings import Recipe
from paceline.task_finder import find_task
from paceline.train.attempt import Attempt
from paceline.world import World

_QUIET = ("log.show_seconds=100000", "evaluate.train_samples=16")
_LESS_ON_A_PROCESSOR = 8


class CheckError(Exception):
    """A check found something wrong; the text says what."""


class NotHereError(Exception):
    """What a check needs is not on this machine; the text says what."""


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CheckError(otherwise)


@dataclass
class Bench:
    folder: Path
    """Scratch; whoever made the bench removes it."""
    device: torch.device
    num_devices: int
    """Of the kind of `device`; processors count as none."""
    data: dict[str, Path] = field(default_factory=dict)
    """Prepared stand-ins by task, made when they are first wanted."""
    _num_runs: int = 0

    def new_run(self) -> RunDirectory:
        self._num_runs += 1
        path = self.folder / f"run-{self._num_runs}"
        path.mkdir(parents=True)
        return RunDirectory(path)

    def stand_in(self, task: str) -> Path:
        """From the data cache if it is there; else made in the scratch folder."""
        if task not in self.data:
            cached = data_directory(stand_in_name(task))
            self.data[task] = cached if cached.is_dir() else self._prepare(task)
        return self.data[task]

    def _prepare(self, task: str) -> Path:
        kind, parser = find_task(task), Parser()
        kind.add_data_options(parser)
        asked = Namespace(source="stand-in", to=self.folder / f"{task}-data")
        return kind.prepare_data(parser.parse_args([], asked), lambda _text: None)

    def settings(self, task: str, *settings: str) -> list[str]:
        """The name of the small recipe of a task, then what makes it short."""
        name = small_recipe(task)
        data, device = f"data={self.stand_in(task)}", f"device={self.device.type}"
        return [name, data, device, *_QUIET, *self._batch(name), *settings]

    def _batch(self, name: str) -> list[str]:
        """A device gets the recipe's own, a processor an eighth of it."""
        batch = recipe.load(name).batch
        if self.device.type != "cpu" or batch.global_ is None:
            return []
        micro = max(batch.micro_size // _LESS_ON_A_PROCESSOR, 1)
        return [f"batch.micro={micro}", f"batch.global={micro * batch.num_micro_batches(1)}"]

    def recipe(self, task: str, *settings: str) -> Recipe:
        name, *asked = self.settings(task, *settings)
        return recipe.load(name, asked)

    @property
    def capability(self) -> Capability | None:
        is_cuda = self.device.type == "cuda"
        return torch.cuda.get_device_capability(self.device) if is_cuda else None

    @property
    def precisions(self) -> tuple[str, ...]:
        return precisions_of(self.capability)


def small_recipe(task: str) -> str:
    """The shipped recipe of a task that trains on its stand-in."""
    for name in recipe.shipped():
        loaded = recipe.load(name)
        if loaded.workload == task and loaded.data.endswith("stand-in"):
            return name
    raise UserError(f"no shipped recipe trains {task} on its stand-in", "reinstall Paceline")


@contextmanager
def open_attempt(loaded: Recipe, run: RunDirectory, device: torch.device) -> Iterator[Attempt]:
    """All that one process of a run has, in this process, up to its first step."""
    write_file(run.recipe, config.to_yaml(config.dump(loaded)))
    task = find_task(loaded.workload).open(loaded, device)
    attempt = Attempt(loaded, run, task, World(0, 1, device, saves=True))
    try:
        yield attempt
    finally:
        attempt.input.close()


def train(
    loaded: Recipe, run: RunDirectory, device: torch.device, until_step: int | None = None
) -> list[dict[str, Any]]:
    """To the end of the recipe in this process, or until it is told to stop after a step; all
    events of the run."""
    with open_attempt(loaded, run, device) as attempt:
        last = loaded.steps if until_step is None else until_step
        attempt.live(WorkerOrder(), lambda: attempt.state.progress.step >= last)
    progress = attempt.state.progress
    require(progress.step == last, f"the run ended after step {progress.step}, not {last}")
    return read_events(run.rank_events(0))


def losses_of(events: list[dict[str, Any]]) -> list[float]:
    return [loss for event in events if event["kind"] == "steps" for loss in event["losses"]]


def call_paceline(bench: Bench, *words: str) -> str:
    """The command line as a user types it; what it prints."""
    command = [sys.executable, "-m", "paceline.cli", *words]
    result = subprocess.run(
        command, cwd=bench.folder, capture_output=True, text=True, check=False, env=os.environ
    )
    told = "\n".join(result.stderr.strip().splitlines()[-8:])
    require(result.returncode == 0, f"paceline {words[0]}: exit code {result.returncode}\n{told}")
    return result.stdout


def report_figures(bench: Bench, run: Path) -> dict[str, dict[str, Any]]:
    """The figures of a run's report, by the key of their answer."""
    document = json.loads(call_paceline(bench, "report", str(run), "--json", "-"))
    return {answer["key"]: answer.get("figures", {}) for answer in document["answers"]}
