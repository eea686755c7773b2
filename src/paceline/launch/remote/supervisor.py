"""The process that stands for a run on each host.

Started as `python -m paceline.launch.remote.supervisor NAME RUN`.

Its arguments are only for people who look at `ps`. Started over ssh, it talks with the launcher in
JSON lines through stdin and stdout, so it opens no port. It starts the agent of a round, passes on
its output, tells every second where the workers are, and ends everything here when the launcher
says so, falls silent, or is gone. It decides nothing about the run as a whole. No torch in this
process.
"""

import json
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from paceline.launch.agent import AgentOrder
from paceline.launch.remote.host_facts import (
    end_earlier,
    full_disks,
    num_out_of_memory_kills,
    tokens_in,
)
from paceline.launch.remote.joining import StageWatch, importing, write_stage
from paceline.launch.remote.program_here import ProgramHere, TrainingHere
from paceline.launch.scratch import scratch_directory
from paceline.launch.script.remote.output import split_rank
from paceline.launch.script.remote.program_here import ScriptHere
from paceline.launch.starter import AgentStarter, RunningAgent
from paceline.machine.cores import num_cores
from paceline.machine.devices import num_visible_devices
from paceline.machine.interfaces import interface_of
from paceline.machine.signals import caught_by, survive

Message = dict[str, Any]

_TICK_SECONDS = 0.5
_SAVE_SECONDS = 30.0
"""How long workers may save after the launcher is gone."""


class Supervisor:
    def __init__(
        self, hello: Message, answers: IO[str], scratch: Path, starter: AgentStarter
    ) -> None:
        self.run = Path(hello["run"])
        self.address: str = hello["address"]
        self._name: str = hello["name"]
        self._answers = answers
        self._lock = threading.Lock()
        self._folder = scratch / "round"
        self._program = program_of(hello, self._folder)
        self._listener: socket.socket | None = None
        self._starter = starter
        self._agent: RunningAgent | None = None
        self._stages: StageWatch | None = None
        """None from when on all workers here tell where they are."""
        self._num_procs = 0
        self._round = 0
        self._kills_before = num_out_of_memory_kills()
        self._token = self.run / f".host-{hello['token']}-{hello['name']}"
        self._token_prefix = f".host-{hello['token']}-"

    def answer(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields})
        with self._lock:
            try:
                self._answers.write(line + "\n")
                self._answers.flush()
            except OSError:  # the launcher is gone; the loop will notice and end
                return

    def arrive(self) -> None:
        end_earlier(self._name, self.run)
        self.run.mkdir(parents=True, exist_ok=True)
        self._token.touch()
        self.answer(
            "hello",
            hostname=socket.gethostname(),
            interface=interface_of(self.address),
            num_cores=num_cores(),
            num_devices=num_visible_devices(),
        )

    def do(self, message: Message) -> None:
        what = message["do"]
        if what == "look":
            tokens = tokens_in(self.run, self._token_prefix)
            self.answer("looked", tokens=tokens, **self._program.look())
        elif what == "listen":
            self._listen()
        elif what == "start":
            self._start(message)
        elif what == "ask_stop":
            self.ask_stop()
            self.pulse(heard_stop=True)
        elif what == "stacks":
            self._program.keep_stacks()
        elif what == "end_round":
            self.end_round()
            self.answer("round_over", round=self._round)

    def _listen(self) -> None:
        """A port of the private address alone, held from now on, so that nobody else takes it."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.bind((self.address, 0))
        self._listener.listen(1024)
        self.answer("listening", port=self._listener.getsockname()[1])

    def _start(self, message: Message) -> None:
        self.end_round()
        self._round = message["round"]
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        this = AgentOrder(
            run=str(self.run),
            num_procs=message["num_procs"],
            log_directory=str(self._folder / "errors"),
            num_hosts=message["num_hosts"],
            host_rank=message["host_rank"],
            failure_file=str(self._folder / "failure.json"),
            **self._program.prepare(message),
        )
        self._num_procs = this.num_procs
        self._begin(this, message)

    def _begin(self, this: AgentOrder, message: Message) -> None:
        self._starter.settle(environment_of(message))
        write_stage(self._folder, importing("torch"))
        listener = self._listener if message["has_store"] else None
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as output:
            agent = self._starter.start(this, output, listener.fileno() if listener else None)
        self._agent, self._stages = agent, StageWatch(self._folder, self._starter.pid)
        said = os.fdopen(reading, encoding="utf-8", errors="replace")
        threading.Thread(target=self._follow, args=(agent, said, self._round), daemon=True).start()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _follow(self, agent: RunningAgent, said: IO[str], number: int) -> None:
        """Pass on what the workers print, and at the end how it ended."""
        with said:
            for line in said:
                rank, text = split_rank(line.rstrip("\n"))
                self.answer("output", text=text, rank=rank)
        code = agent.wait()
        try:
            failure = json.loads((self._folder / "failure.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            failure = None
        killed = num_out_of_memory_kills() - self._kills_before
        beats = self._program.beats()
        self.answer(
            "exited",
            round=number,
            code=code,
            failure=failure,
            beats=beats,
            memory_kills=max(killed, 0),
            full_disks=full_disks(),
        )

    def pulse(self, heard_stop: bool = False) -> None:
        beats = self._program.beats()
        if len(beats) >= self._num_procs:
            self._stages = None
        stage = self._stages.look() if self._stages else None
        now = {"beats": beats, "stage": stage, "heard_stop": heard_stop}
        self.answer("pulse", round=self._round, **now)

    def ask_stop(self) -> None:
        for process in self._program.workers():
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that is stopped hears of it only then

    def end_round(self) -> None:
        """The workers die with their agent."""
        workers = with_children(self._program.workers())
        if self._agent is not None and self._agent.poll() is None:
            self._agent.kill()
            self._agent.wait()
        _, alive = psutil.wait_procs(workers, timeout=3)
        for process in alive:
            process.kill()
        self._program.end_round()

    def is_training(self) -> bool:
        return self._agent is not None and self._agent.poll() is None

    def leave(self) -> None:
        self.end_round()
        self._token.unlink(missing_ok=True)


def with_children(processes: list[psutil.Process]) -> list[psutil.Process]:
    """What workers have started does not end with them by itself."""
    found = list(processes)
    for process in processes:
        try:
            found += process.children(recursive=True)
        except psutil.Error:
            continue
    return found


def program_of(message: Message, folder: Path) -> ProgramHere:
    kind = TrainingHere if message.get("script") is None else ScriptHere
    return kind(Path(message["run"]), folder)


def environment_of(message: Message) -> dict[str, str]:
    """What the agent and the workers get beside this process's own environment."""
    given = {name: str(value) for name, value in message["environment"].items()}
    interface = message["interface"] or interface_of(message["address"]) or "lo"
    num_procs = message["num_procs"] or max(1, num_visible_devices())
    kind = TrainingHere if message.get("script") is None else ScriptHere
    return {**kind.environment(num_procs, interface), **given}


def read_lines(inbox: "queue.Queue[Message | None]") -> None:
    for line in sys.stdin:
        try:
            inbox.put(json.loads(line))
        except ValueError:
            continue
    inbox.put(None)


def serve(
    supervisor: Supervisor,
    inbox: "queue.Queue[Message | None]",
    silence: float,
    leaving: threading.Event,
) -> None:
    """Until the launcher says goodbye, closes the line, or has been silent for too long."""
    heard = told = time.monotonic()
    said_leaving = False
    while time.monotonic() - heard < silence:
        try:
            message = inbox.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            message = {"do": "nothing"}
        else:
            heard = time.monotonic()
        if message is None or message["do"] == "bye":
            break
        supervisor.do(message)
        if leaving.is_set() and not said_leaving:
            said_leaving = True
            supervisor.answer("leaving")
            supervisor.ask_stop()
        if time.monotonic() - told >= 2 * _TICK_SECONDS:
            told = time.monotonic()
            supervisor.pulse()
    else:
        return
    _let_save(supervisor)


def _let_save(supervisor: Supervisor) -> None:
    """The launcher is gone, the other hosts' workers perhaps not: save together, then end."""
    supervisor.ask_stop()
    until = time.monotonic() + _SAVE_SECONDS
    while supervisor.is_training() and time.monotonic() < until:
        time.sleep(0.1)


def main() -> None:
    survive(signal.SIGHUP, signal.SIGINT)  # sshd sends the first when the line is cut
    inbox: queue.Queue[Message | None] = queue.Queue()
    threading.Thread(target=read_lines, args=(inbox,), daemon=True).start()
    warm = inbox.get()
    if warm is not None:
        with AgentStarter(warm["run"], environment_of(warm), warm["name"]) as starter:
            hello = inbox.get()  # comes when the hosts have been examined; torch is imported now
            if hello is not None and hello["do"] == "hello":
                greet(hello, inbox, starter)
    os._exit(0)  # the thread that reads stdin would keep this process


def greet(hello: Message, inbox: "queue.Queue[Message | None]", starter: AgentStarter) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with scratch_directory(Path(hello["run"])) as scratch:
        supervisor = Supervisor(hello, answers, scratch, starter)
        supervise(supervisor, inbox, hello["silence_seconds"])


def supervise(
    supervisor: Supervisor, inbox: "queue.Queue[Message | None]", silence_seconds: float
) -> None:
    leaving = threading.Event()
    try:
        with caught_by(lambda *_: leaving.set(), [signal.SIGTERM]):
            supervisor.arrive()
            serve(supervisor, inbox, silence_seconds, leaving)
    except OSError as error:
        supervisor.answer("problem", text=str(error))
    finally:
        supervisor.leave()


if __name__ == "__main__":
    main()
