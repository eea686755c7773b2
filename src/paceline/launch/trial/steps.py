"""Training for a few steps in a directory of its own, here or on hosts; nothing is left behind."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paceline import config
from paceline.errors import UserError
from paceline.hosts.file import Host, HostsFile
from paceline.hosts.ssh import on_all, run_on
from paceline.launch.claim import Job
from paceline.launch.remote.campaign import run_on_hosts
from paceline.launch.remote.program import Training
from paceline.record.schema import RunDirectory
from paceline.report.facts.facts import Facts
from paceline.report.own.run import read_run
from paceline.settings import Recipe
from paceline.units import count_of

_LAST_LINES: Final = 12


@dataclass(frozen=True)
class Place:
    """Where the steps are done."""

    hosts: HostsFile | None = None
    """None is this machine."""
    num_procs: int | None = None
    """On each host; None is one per device, or one."""

    @property
    def in_words(self) -> str:
        if self.hosts is None:
            return "here"
        names = [host.name for host in self.hosts.hosts]
        return f"on {names[0]}" if len(names) == 1 else f"on {count_of(len(names), 'host')}"


def for_trial(recipe: Recipe, first_step: int, num_steps: int, **kept: Any) -> Recipe:
    """The recipe for so many steps: with nothing between them, and nothing that is left of them."""
    checkpoint = {"every_steps": None, "every_minutes": None, "at_end": False, **kept}
    changes = {
        "steps": first_step + num_steps,
        "evaluate": recipe.evaluate.model_copy(update={"every_steps": None}),
        "checkpoint": recipe.checkpoint.model_copy(update=checkpoint),
        "log": recipe.log.model_copy(update={"every_steps": 1, "tracker": None}),
    }
    return recipe.model_copy(update=changes)


@contextmanager
def scratch_run(hosts: HostsFile | None, beside: Path | None = None) -> Iterator[Path]:
    """A run directory that is gone afterwards, on all hosts. Where hosts share their runs with
    this machine it lies beside one of them, so that they share it, too."""
    name = f"paceline-try-{secrets.token_hex(4)}"
    path = (beside.absolute().parent if beside else Path(tempfile.gettempdir())) / name
    try:
        yield path
    finally:
        if hosts is not None:
            on_all(hosts.hosts, lambda host: _remove_there(host, path))
        shutil.rmtree(path, ignore_errors=True)


def _remove_there(host: Host, path: Path) -> None:
    run_on(host, ["rm", "-rf", "--", str(path)])


def train_steps(recipe: Recipe, run: Path, place: Place) -> Facts:
    """What a run of this recipe tells of itself."""
    train = _train_here if place.hosts is None else _train_on_hosts
    train(recipe, run, place)
    return read_run(run)


def _train_here(recipe: Recipe, run: Path, place: Place) -> None:
    """In a process of its own, whose words are shown only where it fails."""
    run.mkdir(parents=True, exist_ok=True)
    written = run / "trial.yaml"
    written.write_text(config.to_yaml(config.dump(recipe)), encoding="utf-8")
    words = [sys.executable, "-m", "paceline.cli", "train", str(written), "--run", str(run)]
    words += ["--procs", str(place.num_procs)] if place.num_procs else []
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        _end(process)
        raise
    _refuse_failed(process.returncode, said)


def _end(process: "subprocess.Popen[str]") -> None:
    """At once: nothing of it is wanted any more. Its workers die with it."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _train_on_hosts(recipe: Recipe, run: Path, place: Place) -> None:
    assert place.hosts is not None  # noqa: S101
    said: list[str] = []
    job = Job(recipe, RunDirectory(run), place.num_procs or 0, "paceline train")
    code = run_on_hosts(Training(job), place.hosts, said.append)
    _refuse_failed(code, "\n".join(said))


def _refuse_failed(code: int, said: str) -> None:
    if code == 0:
        return
    if code > 128 or code < 0:
        raise KeyboardInterrupt
    last = "\n  ".join(said.strip().splitlines()[-_LAST_LINES:])
    raise UserError(
        f"the trial steps ended with exit code {code}:\n  {last}",
        "train the recipe for some steps as it is to see what is wrong",
    )
