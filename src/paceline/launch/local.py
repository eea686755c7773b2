"""Training on this machine: checks, environment, start, signals, end. No torch in this process.

The launcher owns the terminal. Workers live in sessions of their own, so Ctrl-C reaches only the
launcher, which asks the workers to save and stop; a second Ctrl-C ends everything at once.
"""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import psutil

from paceline.errors import Say
from paceline.launch.agent import AgentOrder
from paceline.launch.claim import Job, claim_run, next_attempt, note_launch
from paceline.launch.scratch import scratch_directory
from paceline.lifetime import process_started
from paceline.machine.cores import num_cores
from paceline.machine.signals import caught_by
from paceline.machine.tuning import exact_environment, speed_environment
from paceline.order import WorkerOrder
from paceline.recipe import refuse_too_many_processes
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.writer import EventFile


def train(job: Job, say: Say) -> int:
    """Run the job to its end and return the exit code of the command."""
    started = process_started()
    refuse_too_many_processes(job.recipe, job.num_procs)
    with claim_run(job, say):
        note_launch(job.run, None, [])
        attempt = next_attempt(job.run)
        events = EventFile(job.run.launcher_events, attempt)
        exact = exact_environment(job.recipe.deterministic)
        environment = speed_environment(job.num_procs) | exact
        events.write(
            "launch",
            started=started,
            command=job.command,
            num_procs=job.num_procs,
            num_cores=num_cores(),
            settings=environment,
        )
        order = WorkerOrder(attempt=attempt, launched_at=started)
        code = _run_agent(job, order, environment, say)
        events.write("exit", code=code)
        events.close()
        return code


def _run_agent(job: Job, order: WorkerOrder, environment: dict[str, str], say: Say) -> int:
    with scratch_directory(job.run.path) as scratch:
        store = str(scratch / "store")
        this = AgentOrder(
            str(job.run.path), job.num_procs, store, log_directory=str(scratch / "torchrun")
        )
        agent = subprocess.Popen(
            [sys.executable, "-m", "paceline.launch.agent", this.text()],
            env={**os.environ, **environment, **replace(order, store=store).to_environment()},
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
