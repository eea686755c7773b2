"""Training on this machine: checks, environment, start, signals, end. No torch in this process.

The launcher owns the terminal. Workers live in sessions of their own, so Ctrl-C reaches only the
launcher, which asks the workers to save and stop; a second Ctrl-C ends everything at once.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from paceline import config
from paceline.errors import UserError
from paceline.launch.agent import Round
from paceline.launch.jobs import note_launch
from paceline.launch.signals import caught_by
from paceline.lifetime import process_started
from paceline.machine.tuning import num_cores, speed_environment
from paceline.recipe import Recipe, read_settings, refuse_meaningless_change
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.directory import refuse_newer
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile, prepare_directory, write_file

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    recipe: Recipe
    run: RunDirectory
    num_procs: int
    """Per host; 0, on many hosts, is as many as each has devices."""
    command: str
    """What the user typed; repeated when saying how to go on."""


def train(job: Job, say: Say) -> int:
    """Run the job to its end and return the exit code of the command."""
    started = process_started()
    prepare_directory(job.run.path)
    with only_one(job.run):
        settle_recipe(job, say)
        note_launch(job.run, None, [])
        attempt = 1 + sum(e["kind"] == "launch" for e in read_events(job.run.launcher_events))
        events = EventFile(job.run.launcher_events, attempt)
        environment = speed_environment(job.num_procs)
        events.write(
            "launch",
            started=started,
            command=job.command,
            num_procs=job.num_procs,
            num_cores=num_cores(),
            settings=environment,
        )
        code = _run_agent(job, {**environment, **_identity(started, attempt)}, say)
        events.write("exit", code=code)
        events.close()
        return code


def _identity(started: float, attempt: int) -> dict[str, str]:
    return {"PACELINE_LAUNCHED_AT": repr(started), "PACELINE_ATTEMPT": str(attempt)}


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
        changes = refuse_meaningless_change(read_settings(job.run.recipe), job.recipe, job.run.path)
        steps = [step_of(path) for path in all_checkpoints(job.run.checkpoints)]
        say(f"{job.run.path} goes on from step {max(steps, default=0):,}")
        for change in changes:
            say(f"  changed: {change}")
    write_file(job.run.recipe, config.to_yaml(config.dump(job.recipe)))


def _run_agent(job: Job, environment: dict[str, str], say: Say) -> int:
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        store = Path(folder) / "store"
        this = Round(str(job.run.path), job.num_procs, str(store))
        agent = subprocess.Popen(
            [sys.executable, "-m", "paceline.launch.agent", this.text()],
            env={**os.environ, **environment, "PACELINE_STORE": str(store)},
            start_new_session=True,
        )
        stopper = Stopper(agent, say)
        with caught_by(stopper.on_signal):
            code = agent.wait()
        stopper.end_stragglers()
    return _conclude(job, code, stopper, say)


def _conclude(job: Job, code: int, stopper: "Stopper", say: Say) -> int:
    steps = [step_of(path) for path in all_checkpoints(job.run.checkpoints)]
    newest = max(steps, default=None)
    kept = f"saved at step {newest:,}" if newest is not None else "nothing was saved yet"
    if stopper.asked is not None:
        say(f"stopped; {kept}. Go on with:\n  {job.command}")
        return 128 + stopper.asked
    if code == 0:
        return 0
    if code != 2:
        say(f"the run ended early; {kept}. Go on with:\n  {job.command}")
    return code if code > 0 else 1


class Stopper:
    """Turns signals to the launcher into an orderly end of the workers."""

    def __init__(self, agent: subprocess.Popen[bytes], say: Say) -> None:
        self._agent = agent
        self._say = say
        self._workers: list[psutil.Process] = []
        self.asked: int | None = None

    def on_signal(self, number: int, _frame: Any) -> None:
        if self.asked is not None:
            self._say("ending at once")
            self._agent.kill()  # workers die with it
            return
        self.asked = number
        self._workers = self._find_workers()
        if not self._workers:
            self._agent.kill()
            return
        self._say("saving a checkpoint, then stopping (once more: end at once)")
        for worker in self._workers:
            worker.terminate()

    def _find_workers(self) -> list[psutil.Process]:
        try:
            children = psutil.Process(self._agent.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if _is_worker(child)]

    def end_stragglers(self) -> None:
        """The kernel ends the workers with their agent; make sure that it has happened."""
        _, alive = psutil.wait_procs(self._workers, timeout=5)
        for worker in alive:
            worker.kill()


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "paceline.train.worker" in process.cmdline()
    except psutil.Error:
        return False


def run_alone(module: str, arguments: list[str], stdout: IO[bytes] | int | None = None) -> int:
    """Run one module of ours with a worker's environment, and pass signals on."""
    environment = {**os.environ, **speed_environment(1)}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment, stdout=stdout
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        time.sleep(0.1)
        process.kill()
        return 130
