"""Training on this machine: checks, environment, start, signals, end. No torch in this process.

The launcher owns the terminal. Workers live in sessions of their own, so Ctrl-C reaches only the
launcher, which asks the workers to save and stop; a second Ctrl-C ends everything at once.
"""

import signal
import socket
from dataclasses import replace
from typing import Any

import psutil

from paceline.errors import Say
from paceline.launch.agent import AgentOrder
from paceline.launch.claim import Job, claim_run, next_attempt, note_launch
from paceline.launch.ending import ending_in_words
from paceline.launch.scratch import scratch_directory
from paceline.launch.starter import AgentStarter, RunningAgent
from paceline.launch.tending import in_roles, new_token
from paceline.lifetime import process_started
from paceline.machine.cores import num_cores
from paceline.machine.signals import caught_by
from paceline.order import WorkerOrder
from paceline.recipe import refuse_too_many_processes
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.writer import EventFile


def train(job: Job, starter: AgentStarter, say: Say) -> int:
    """Run the job to its end and return the exit code of the command."""
    started = process_started()
    if job.roles is None:
        refuse_too_many_processes(job.recipe, job.num_procs)
    stopper = Stopper(say)
    with claim_run(job, say), caught_by(stopper.on_signal):
        note_launch(job.run, None, [])
        attempt = next_attempt(job.run)
        events = EventFile(job.run.launcher_events, attempt)
        events.write(
            "launch",
            started=started,
            command=job.command,
            num_procs=job.num_procs,
            num_cores=num_cores(),
            settings=starter.environment,
            **({"roles": list(job.roles.by_rank)} if job.roles else {}),
        )
        order = WorkerOrder(attempt=attempt, launched_at=started)
        code = _run_agent(job, order, starter, stopper)
        code = _conclude(job, code, stopper, say)
        if code == 0:
            say(ending_in_words(job.run, started))
        events.write("exit", code=code)
        events.close()
        return code


def _run_agent(job: Job, order: WorkerOrder, starter: AgentStarter, stopper: "Stopper") -> int:
    with scratch_directory(job.run.path) as scratch:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024) if job.roles else None
        if job.roles is None or listener is None:
            order = replace(order, store=str(scratch / "store"))
        else:
            place = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            (scratch / "pulses").mkdir()
            order = replace(order, store=place, pulse_directory=str(scratch / "pulses"))
            order = in_roles(order, job.roles, job.recipe, new_token())
        this = AgentOrder(
            str(job.run.path), job.num_procs, order.as_document(), str(scratch / "errors")
        )
        agent = starter.start(this, listener=listener.fileno() if listener else None)
        if listener is not None:
            listener.close()  # it is the agent's now
        stopper.follow(agent)
        code = agent.wait()
        stopper.end_stragglers()
    return code


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

    def __init__(self, say: Say) -> None:
        self._agent: RunningAgent | None = None
        self._say = say
        self._workers: list[psutil.Process] = []
        self.asked: int | None = None

    def follow(self, agent: RunningAgent) -> None:
        self._agent = agent
        if self.asked is not None:  # while it was being started
            agent.kill()

    def on_signal(self, number: int, _frame: Any) -> None:
        if self.asked is not None:
            if number != signal.SIGHUP:  # a closed terminal sends it more than once
                self._say("ending at once")
                self._end_at_once()
            return
        self.asked = number
        self._workers = self._find_workers()
        if not self._workers:
            self._end_at_once()
            return
        self._say("saving a checkpoint, then stopping (once more: end at once)")
        for worker in self._workers:
            worker.terminate()

    def _end_at_once(self) -> None:
        if self._agent is not None:
            self._agent.kill()  # workers die with it

    def _find_workers(self) -> list[psutil.Process]:
        if self._agent is None or self._agent.pid is None:
            return []
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
