"""torchrun inside one process of ours, one per host: `python -m paceline.launch.agent ORDER`.

torchrun starts the workers, notices the first that fails and ends the others. What is added here:
it dies with its launcher, is quiet, and says in one message which worker failed first and why.
ORDER is JSON, see `AgentOrder`.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from paceline.errors import EXIT_USER_ERROR
from paceline.launch.failures import echo_level
from paceline.launch.remote.joining import WAITING, importing, write_stage
from paceline.lifetime import die_with_parent
from paceline.machine.signals import survive

_STORE_SECONDS = 60
_JOIN_SECONDS = 86_400
"""The launcher sees what every host does, and decides for how long it is waited for."""


@dataclass(frozen=True)
class AgentOrder:
    """What one agent must know to start its part of a world."""

    run: str
    num_procs: int
    store: str
    """A file on one host; on many 'tcp://address:port' of a store on the first host."""
    log_directory: str
    """Where torchrun keeps its files; its default stays behind in the temporary directory."""
    num_hosts: int = 1
    first_rank: int = 0
    address: str = ""
    """This host's private address."""
    listener: int | None = None
    """On the first of many hosts: the open file on which the store listens."""
    failure_file: str | None = None
    """Where to write who failed; None says it on stderr."""

    @classmethod
    def parse(cls, text: str) -> "AgentOrder":
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    die_with_parent()
    this = AgentOrder.parse(sys.argv[1])
    survive(signal.SIGTERM)  # the workers save; this process outlives them
    _note_stage(this, importing("torch"))
    from torch.distributed import run as torchrun  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    logging.disable(logging.CRITICAL)  # explain() says once what torchrun says many times
    store = _serve(this)
    _note_stage(this, WAITING)
    try:
        torchrun.main([*_signals(torchrun), *_arguments(this)])
        os._exit(0)  # interpreter shutdown with torch loaded takes a second that nobody needs
    except ChildFailedError as error:
        failure = first_cause(error.failures.values())
        rank = this.first_rank + failure.local_rank
        _tell(this, rank, failure)
        os._exit(EXIT_USER_ERROR if failure.exitcode == EXIT_USER_ERROR else 1)
    finally:
        del store


def _note_stage(this: AgentOrder, text: str) -> None:
    if this.failure_file is not None:
        write_stage(Path(this.failure_file).parent, text)


def _serve(this: AgentOrder) -> Any:
    if this.listener is None:
        return None
    from paceline.world import serve_store  # noqa: PLC0415

    address, _, port = this.store.removeprefix("tcp://").rpartition(":")
    return serve_store(address, int(port), this.listener, timedelta(seconds=_STORE_SECONDS))


def _signals(torchrun: Any) -> list[str]:
    """Older versions have no such option, and end workers that are saving after 30 s."""
    option = "--signals-to-handle"
    return [f"{option}=SIGQUIT"] if option in torchrun.get_args_parser().format_help() else []


def _arguments(this: AgentOrder) -> list[str]:
    if this.num_hosts == 1 and not this.store.startswith("tcp://"):
        meeting = [f"--rdzv-endpoint={this.store}.rendezvous", "--rdzv-conf=store_type=file"]
    else:
        # The world is complete or it does not start, so nobody waits for a last call. The store
        # is ours, because torchrun's own would listen on every address.
        endpoint = this.store.removeprefix("tcp://")
        meeting = [
            f"--rdzv-endpoint={endpoint}",
            f"--rdzv-conf=is_host=0,join_timeout={_JOIN_SECONDS},read_timeout={_JOIN_SECONDS},"
            "keep_alive_interval=1,keep_alive_max_attempt=3",
            f"--local-addr={this.address}",
        ]
    return [
        f"--nnodes={this.num_hosts}",
        f"--nproc-per-node={this.num_procs}",
        "--max-restarts=0",
        f"--log-dir={this.log_directory}",
        "--rdzv-backend=c10d",
        *meeting,
        "--module",
        "paceline.train.worker",
        this.run,
    ]


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
        sys.stderr.write(explain(rank, failure) + "\n")
        sys.stderr.flush()
        return
    facts = {
        "rank": rank,
        "pid": failure.pid,
        "exit_code": failure.exitcode,
        "message": message_of(failure),
    }
    Path(this.failure_file).write_text(json.dumps(facts), encoding="utf-8")


def explain(rank: int, failure: Any) -> str:
    """The user's message as it is; for anything else which process, how, and its traceback."""
    message = message_of(failure)
    if failure.exitcode == EXIT_USER_ERROR and message:
        return message
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return f"error: process {rank} (pid {failure.pid}) was killed by {name}"
    return f"error: process {rank} (pid {failure.pid}) failed\n{message}"


def message_of(failure: Any) -> str:
    """What the worker recorded: a user's message without its type, else the traceback."""
    data = failure.error_file_data
    recorded = data.get("message") if isinstance(data, dict) else None
    if not isinstance(recorded, dict):
        return str(failure.message)
    if failure.exitcode == EXIT_USER_ERROR:
        return str(recorded["message"]).partition(": ")[2]
    return str(recorded.get("extraInfo", {}).get("py_callstack", recorded["message"]))


if __name__ == "__main__":
    main()
