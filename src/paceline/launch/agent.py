"""What stands for a world on one host: torch's elastic agent with our workers, and their failures.

It starts the workers, notices the first that fails and ends the others. What is added here: it
dies with its launcher, is quiet, and says in one message which worker failed first and why. It is
forked from a process that has imported torch (`forkserver.py`); where forking is not safe it is
started as `python -m paceline.launch.agent RUN ORDER`, with an `AgentOrder` as JSON.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from paceline.errors import EXIT_USER_ERROR
from paceline.launch.failures import echo_level, message_of
from paceline.launch.remote.joining import STARTING, WAITING, write_stage
from paceline.launch.script.remote.workers import ScriptWorker, prepare_scripts
from paceline.launch.workers import Worker, prepare_workers
from paceline.lifetime import die_with_parent
from paceline.machine.signals import survive
from paceline.order import WorkerOrder
from paceline.strategies.roles import Roles
from paceline.terminal import outlive_terminal

MODULE = "paceline.launch.agent"
_STORE_SECONDS = 60


@dataclass(frozen=True)
class AgentOrder:
    """What one agent must know to start its part of a world."""

    run: str
    num_procs: int
    worker: dict[str, Any]
    """The order to each worker, as a document."""
    log_directory: str
    """Where workers leave their error files."""
    num_hosts: int = 1
    host_rank: int = 0
    """The how-manieth host this is."""
    listener: int | None = None
    """On the first of many hosts: the open file on which the store listens."""
    directory: str | None = None
    """Where the workers find the user's code; None is where the launcher was started."""
    failure_file: str | None = None
    """Where to write who failed; None says it on stderr."""
    script: dict[str, Any] | None = None
    """A `ScriptOrder` as a document, where the workers are a user's script and not our training."""

    @classmethod
    def parse(cls, text: str) -> "AgentOrder":
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def worker_order(self) -> WorkerOrder:
        return WorkerOrder.from_document(self.worker)

    @property
    def store(self) -> str:
        return self.worker_order.store or ""


def main() -> None:
    die_with_parent()
    outlive_terminal()
    survive(signal.SIGTERM)  # the workers save; this process outlives them
    run_agent(AgentOrder.parse(sys.argv[2]), MODULE)


def run_agent(this: AgentOrder, process_name: str) -> NoReturn:
    """To the end of this process. `process_name`: the module by which `ps` knows it."""
    if this.directory is not None:
        os.chdir(this.directory)
    workers = _prepare(this, process_name)  # before any thread
    from paceline.launch.elastic import Part, run_workers  # noqa: PLC0415  (torch)
    from paceline.launch.tending import tend_workers  # noqa: PLC0415

    logging.disable(logging.CRITICAL)  # explain() says once what torch says many times
    folder = Path(this.log_directory)
    folder.mkdir(parents=True, exist_ok=True)
    store = _serve(this)
    _note_stage(this, WAITING)
    part = Part(this.store, this.host_rank, this.num_hosts, folder, _variables(this))
    if this.worker_order.roles:
        _note_stage(this, STARTING)
        failures = tend_workers(this.run, part, workers, this.worker_order)
    else:
        failures = run_workers(part, workers, lambda: _note_stage(this, STARTING))
    del store
    if this.script is not None:
        _give_last_words(failures, workers)
    _leave(this, failures)


def _prepare(this: AgentOrder, process_name: str) -> Sequence[Worker]:
    if this.script is None:
        return prepare_workers(this.run, this.num_procs, process_name)
    return prepare_scripts(this.script, this.num_procs, this.worker_order.first_rank or 0)


def _variables(this: AgentOrder) -> dict[str, str]:
    """For the workers, beside who they are in the world."""
    if this.script is None:
        return this.worker_order.to_environment()
    address, _, port = this.store.removeprefix("tcp://").rpartition(":")
    return {**this.script["variables"], "MASTER_ADDR": address, "MASTER_PORT": port}


def _give_last_words(failures: dict[int, Any], workers: Sequence[Worker]) -> None:
    """A script leaves no error file, but what it printed last."""
    for failure in failures.values():
        worker = workers[failure.local_rank]
        if isinstance(worker, ScriptWorker):
            failure.message, failure.error_file_data = worker.last_words, {}


def _leave(this: AgentOrder, failures: dict[int, Any]) -> NoReturn:
    """Without the interpreter's shutdown, which with torch takes a second that nobody needs."""
    if not failures:
        os._exit(0)
    failure = first_cause(failures.values())
    _tell(this, (this.worker_order.first_rank or 0) + failure.local_rank, failure)
    os._exit(EXIT_USER_ERROR if failure.exitcode == EXIT_USER_ERROR else 1)


def _note_stage(this: AgentOrder, text: str) -> None:
    if this.failure_file is not None:
        write_stage(Path(this.failure_file).parent, text)


def _serve(this: AgentOrder) -> Any:
    if this.listener is None:
        return None
    from paceline.world import serve_store  # noqa: PLC0415

    address, _, port = this.store.removeprefix("tcp://").rpartition(":")
    return serve_store(address, int(port), this.listener, timedelta(seconds=_STORE_SECONDS))


def first_cause(failures: Iterable[Any]) -> Any:
    """The failure that the others followed from.

    The time alone does not tell: a process that was killed is dated when the agent looks, its
    neighbour when it noticed the broken connection, which was earlier.
    """

    def order(failure: Any) -> tuple[bool, int, float]:
        echo = echo_level(failure.exitcode, message_of(failure))
        return failure.exitcode != EXIT_USER_ERROR, echo, failure.timestamp

    return min(failures, key=order)


def _tell(this: AgentOrder, rank: int, failure: Any) -> None:
    if this.failure_file is None:
        roles = this.worker_order.roles
        role = Roles(roles).name_of(rank) if roles else ""
        sys.stderr.write(explain(rank, failure, role) + "\n")
        sys.stderr.flush()
        return
    facts = {
        "rank": rank,
        "pid": failure.pid,
        "exit_code": failure.exitcode,
        "message": message_of(failure),
    }
    Path(this.failure_file).write_text(json.dumps(facts), encoding="utf-8")


def explain(rank: int, failure: Any, role: str = "") -> str:
    """The user's message as it is; for anything else which process, how, and its traceback."""
    who = f"{role} (process {rank}, pid {failure.pid})" if role else ""
    who = who or f"process {rank} (pid {failure.pid})"
    message = message_of(failure)
    if failure.exitcode == EXIT_USER_ERROR and message:
        return message
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return f"error: {who} was killed by {name}"
    return f"error: {who} failed\n{message}"


if __name__ == "__main__":
    main()
