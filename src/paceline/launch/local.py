"""Training on this machine: checks, environment, start, signals, end. No torch in this process.

The launcher owns the terminal. Workers live in sessions of their own, so Ctrl-C reaches only the
launcher, which asks the workers to save and stop; a second Ctrl-C ends everything at once.
"""

import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from paceline.errors import Say
from paceline.launch.agent import AgentOrder
from paceline.launch.claim import Job, claim_run, next_attempt, note_launch
from paceline.launch.ending import ending_in_words
from paceline.launch.hang import RankState, find_hang, without_replaceable
from paceline.launch.remote.host_facts import read_pulses
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
from paceline.settings import GuardSettings
from paceline.units import format_seconds

_LOOK_SECONDS = 2.0
_LOOKS = 2
"""In a row that find a hang: a machine that wakes up from sleep has old signs of life for a moment.
"""


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
        pulses = scratch / "pulses"
        pulses.mkdir()
        if job.num_procs > 1:  # one alone waits for nobody
            order = replace(order, pulse_directory=str(pulses))
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024) if job.roles else None
        if job.roles is None or listener is None:
            order = replace(order, store=str(scratch / "store"))
        else:
            order = replace(order, store=f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            order = in_roles(order, job.roles, job.recipe, new_token())
        this = AgentOrder(
            str(job.run.path), job.num_procs, order.as_document(), str(scratch / "errors")
        )
        agent = starter.start(this, listener=listener.fileno() if listener else None)
        if listener is not None:
            listener.close()  # it is the agent's now
        stopper.follow(agent)
        watch = HangWatch(pulses, job.recipe.guard, stopper.say, order)
        while (code := agent.wait_for(_LOOK_SECONDS)) is None:
            watch.look(time.monotonic())
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


class HangWatch:
    """Says who keeps the other processes waiting. It ends nothing: what is only slow goes on, and
    what hangs is given up by torch after `guard.group_seconds`."""

    def __init__(
        self, pulses: Path, guard: GuardSettings, say: Say, order: WorkerOrder | None = None
    ) -> None:
        """`order`: that of the workers."""
        self._pulses, self._guard, self._say = pulses, guard, say
        self._replaceable = order.replaceable if order is not None else ()
        given_up = f"given up after {format_seconds(guard.group_seconds)} (guard.group_seconds)"
        self._advice = f"It is {given_up}; Ctrl-C ends it now"
        if order is not None and order.roles:
            self._advice = "The chief gives up whoever is silent; Ctrl-C ends it now"
        self._step, self._since, self._slowest_seconds = 0, 0.0, 0.0
        self._num_looks = 0
        self._said_at_step: int | None = None

    def look(self, now: float) -> None:
        told = read_pulses(self._pulses)
        states = without_replaceable(
            [RankState.of("", {**beat, "silent_seconds": age}) for beat, age in told],
            self._replaceable,
        )
        if not states:
            return
        self._note_steps(min(state.step for state in states), now)
        hang = find_hang(states, self._guard.hang_seconds, self._slowest_seconds)
        is_waiting = any(state.collective for state in states)
        self._num_looks = self._num_looks + 1 if hang is not None and is_waiting else 0
        if hang is None or self._num_looks < _LOOKS or self._said_at_step == self._step:
            return
        self._said_at_step = self._step
        places = "\n".join(f"  {_place(state)}" for state in states)
        self._say(f"hang: {hang.text}; where every process is:\n{places}\n{self._advice}")

    def _note_steps(self, step: int, now: float) -> None:
        if step == self._step:
            return
        if self._step:  # what came before the first one was no step
            seconds = (now - self._since) / (step - self._step)
            self._slowest_seconds = max(self._slowest_seconds, seconds)
        self._step, self._since = step, now


def _place(state: RankState) -> str:
    return f"{state.place}, for {format_seconds(state.quiet_seconds)}"


class Stopper:
    """Turns signals to the launcher into an orderly end of the workers."""

    def __init__(self, say: Say) -> None:
        self._agent: RunningAgent | None = None
        self.say = say
        self._workers: list[psutil.Process] = []
        self.asked: int | None = None

    def follow(self, agent: RunningAgent) -> None:
        self._agent = agent
        if self.asked is not None:  # while it was being started
            agent.kill()

    def on_signal(self, number: int, _frame: Any) -> None:
        if self.asked is not None:
            if number != signal.SIGHUP:  # a closed terminal sends it more than once
                self.say("ending at once")
                self._end_at_once()
            return
        self.asked = number
        self._workers = self._find_workers()
        if not self._workers:
            self._end_at_once()
            return
        self.say("saving a checkpoint, then stopping (once more: end at once)")
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
