"""A run in Python: its report, curves, scores, checkpoints and trained network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.live import follow
from paceline.api.views import ReportView, open_view
from paceline.errors import UserError
from paceline.launch import jobs
from paceline.machine.tuning import exact_environment, speed_environment
from paceline.recipe import from_run, read_settings, settings_of_run
from paceline.record import checkpoints
from paceline.record.directory import is_being_trained, require_run
from paceline.record.events import read_events
from paceline.record.story import read_story
from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.facts.facts import Options
from paceline.report.own.run import read_run
from paceline.report.render.csv import read_curves
from paceline.task_finder import find_task
from paceline.tasks.contract import Scores

if TYPE_CHECKING:
    from torch import nn


class Run:
    """One run directory: being trained, finished, or anything between. Nothing here changes it,
    but `stop` and `evaluate`."""

    def __init__(self, path: str | Path) -> None:
        self._files = require_run(Path(path).expanduser())

    @property
    def path(self) -> Path:
        return self._files.path

    @property
    def state(self) -> str:
        """training, finished, stopped, failed or interrupted."""
        return jobs.describe(self._files).state

    @property
    def step(self) -> int:
        return jobs.describe(self._files).step

    @property
    def settings(self) -> dict[str, Any]:
        """Its recipe, every value explicit."""
        return settings_of_run(self._files)

    def report(self, link: str | None = None, price: float | None = None) -> ReportView:
        """Where the time went and what came of it: a page in a notebook, text in a terminal."""
        return open_view([self.path], link, price)

    @property
    def answers(self) -> dict[str, Answer]:
        """The report's answers by key, each with a `sentence` and `figures`."""
        found = answers(read_run(self.path, Options(None, None)))
        return {answer.key: answer for answer in found}

    def curves(self) -> Any:
        """Loss, rate, speed and scores, a row for each recorded interval: a pandas frame where
        pandas is installed, else a dict of columns. What a row lacks is NaN."""
        columns = read_curves(self.path)
        try:
            import pandas  # noqa: PLC0415  (nobody is asked to install it)
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """The newest scores of each split, `evaluate`'s included: {'validation': {'top1': ...}}"""
        while_training = read_story(self._files).of_kind("score")
        later = read_events(self._files.evaluation_events)
        events = [*while_training, *(event for event in later if event["kind"] == "score")]
        return {event["split"]: dict(event["scores"]) for event in events}

    def checkpoint(self, which: str | int = "best") -> Path:
        """The directory of 'best', 'newest' or a step; weights are in weights.safetensors."""
        return checkpoints.choose(self.path, str(which))

    def model(self, which: str | int = "best", device: str = "cpu") -> "nn.Module":
        """The trained network, in evaluation mode, on a device."""
        from paceline.models.weights import load_weights  # noqa: PLC0415  (takes torch)

        recipe = from_run(self._files.recipe)
        network = find_task(recipe.workload).build_network(recipe)
        network.load_state_dict(load_weights(self.path, str(which)).tensors)
        return network.to(device).eval()

    def evaluate(self, split: str = "validation", which: str | int = "best") -> Scores:
        """Scores of a checkpoint, by a process of its own; they are recorded in the run."""
        words = [
            "-m",
            "paceline.train.measure.evaluator",
            str(self.path),
            str(which),
            split,
            "json",
        ]
        is_exact = read_settings(self._files.recipe).get("deterministic") is True
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, **speed_environment(1), **exact_environment(is_exact)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise as_error(done.stderr)
        told = json.loads(done.stdout.splitlines()[-1])
        return Scores(told["scores"], told["signature"])

    def wait(self) -> "Run":
        """Follow it to its end; interrupting only stops the following."""
        self.follow(lambda: not is_being_trained(self._files))
        return self

    def follow(self, is_over: Any) -> None:
        try:
            follow(self._files, self.settings.get("steps"), is_over)
        except KeyboardInterrupt:
            sys.stderr.write(f"the run goes on; paceline.open({str(self.path)!r}).stop() ends it\n")

    def stop(self) -> None:
        """End it everywhere, with a checkpoint; the same `train` goes on from there."""
        jobs.stop(self.path, lambda _text: None)

    def __repr__(self) -> str:
        told = jobs.describe(self._files)
        total = f" of {told.total_steps:,}" if told.total_steps else ""
        return f"Run({str(self.path)!r}): {told.state}, step {told.step:,}{total}"


def open_run(path: str | Path) -> Run:
    """A run by its directory, also one that is being trained by somebody else."""
    return Run(path)


def compare(first: "Run | str | Path", *others: "Run | str | Path") -> ReportView:
    """What differs between runs, and what it bought."""
    if not others:
        raise UserError("one run cannot be compared", "name two or more")
    return open_view([_path_of(run) for run in (first, *others)])


def _path_of(run: "Run | str | Path") -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def as_error(said: str) -> UserError:
    """What a command of ours wrote before it ended, as the exception that it was."""
    _, _, last = said.strip().rpartition("error: ")
    what, _, fix = last.partition("\n  fix: ")
    return UserError(what.strip() or "it ended without a word", fix.strip())
