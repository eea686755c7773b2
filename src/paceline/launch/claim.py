"""A launcher's claim on a run directory: what every launcher does before it starts a process.

Which job it is, that no other launcher is at work there, the recipe that counts from now on, the
number of the attempt, and who is training. Shared by the launchers; none of them lives here.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import config
from paceline.errors import Say, UserError
from paceline.launch.going_on import (
    changed_rate,
    clear_untrained,
    forgetting_untrained,
    is_trained,
    newest_step,
)
from paceline.recipe import read_settings, refuse_meaningless_change, refuse_other_task
from paceline.record.directory import read_launch, refuse_newer
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.record.writer import prepare_directory, write_file
from paceline.schedule import short_warm_up
from paceline.settings import Recipe
from paceline.strategies.roles import Roles


@dataclass(frozen=True)
class Job:
    recipe: Recipe
    run: RunDirectory
    num_procs: int
    """Per host; 0, on many hosts, is as many as each has devices."""
    command: str
    """What the user typed; repeated when saying how to go on."""
    roles: Roles | None = None
    """With parameter servers: who is who."""


@contextmanager
def claim_run(job: Job, say: Say) -> Iterator[None]:
    """The run is this launcher's alone meanwhile, and its recipe is the job's.

    A start that fails before the first step leaves nothing that a later one would have to respect.
    """
    was_there = job.run.path.exists()
    prepare_directory(job.run.path)
    try:
        with only_one(job.run), forgetting_untrained(job.run):
            settle_recipe(job, say)
            yield
    finally:
        if not was_there:
            _remove_if_empty(job.run)


def _remove_if_empty(run: RunDirectory) -> None:
    with suppress(OSError):
        if {path.name for path in run.path.iterdir()} <= {run.lock.name}:
            run.lock.unlink(missing_ok=True)
            run.path.rmdir()


@contextmanager
def only_one(run: RunDirectory) -> Iterator[None]:
    """Two launchers in one run directory would ruin each other's checkpoints."""
    with run.lock.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise UserError(
                f"{run.path} is being trained already, by {holder}",
                "stop that one (Ctrl-C or kill), or name another --run",
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


def settle_recipe(job: Job, say: Say) -> None:
    """Write the recipe into the run, after making sure that it may go on with it."""
    if job.run.exists():
        refuse_newer(job.run)
        old = read_settings(job.run.recipe)
        refuse_other_task(old, job.recipe, job.run.path)
        if is_trained(job.run):
            _go_on(job, old, say)
    if warning := short_warm_up(job.recipe.schedule, job.recipe.steps):
        say(f"warning: {warning}")
    clear_untrained(job.run)
    write_file(job.run.recipe, config.to_yaml(config.dump(job.recipe)))


def _go_on(job: Job, old: dict[str, Any], say: Say) -> None:
    """Say from where and with which changes, unless one of them makes no sense."""
    changes = refuse_meaningless_change(old, job.recipe, job.run.path)
    say(f"{job.run.path} goes on from step {newest_step(job.run):,}")
    for change in changes:
        say(f"  changed: {change}")
    if news := changed_rate(job, old):
        say(news)


def next_attempt(run: RunDirectory) -> int:
    """Attempts count from 1; each has written one `launch`."""
    launches = [e for e in read_events(run.launcher_events) if e["kind"] == "launch"]
    return 1 + len(launches)


def note_launch(run: RunDirectory, hosts_file: Path | None, away: list[str]) -> None:
    """Who trains this run: for `stop`, and for fetching from hosts that keep their own files."""
    facts = {
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "hosts_file": str(hosts_file.absolute()) if hosts_file else None,
        "collect_from": away,
    }
    write_file(run.launch, json.dumps(facts) + "\n")


def note_end(run: RunDirectory, code: int) -> None:
    write_file(run.launch, json.dumps({**read_launch(run), "code": code}) + "\n")
