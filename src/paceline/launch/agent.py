"""torchrun inside one process of ours: `python -m paceline.launch.agent NUM_PROCS RUN STORE`.

torchrun starts the workers, notices the first that fails and ends the others. What is added here:
it dies with the launcher, is quiet, and says in one message which worker failed first and why.
"""

import logging
import os
import signal
import sys
from typing import Any

from paceline.errors import EXIT_USER_ERROR
from paceline.lifetime import die_with_parent


def main() -> None:
    die_with_parent()
    num_procs, run, store = sys.argv[1:4]
    from torch.distributed import run as torchrun  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    logging.disable(logging.CRITICAL)  # explain() says once what torchrun says many times
    arguments = [
        "--nnodes=1",
        f"--nproc-per-node={num_procs}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={store}.rendezvous",
        "--rdzv-conf=store_type=file",
        "--module",
        "paceline.train.worker",
        run,
    ]
    try:
        torchrun.main(arguments)
        os._exit(0)  # interpreter shutdown with torch loaded takes a second that nobody needs
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        sys.stderr.write(explain(rank, failure) + "\n")
        sys.stderr.flush()
        os._exit(EXIT_USER_ERROR if failure.exitcode == EXIT_USER_ERROR else 1)


def explain(rank: int, failure: Any) -> str:
    """The user's message as it is; for anything else which process, how, and its traceback."""
    message = _message_of(failure)
    if failure.exitcode == EXIT_USER_ERROR and message:
        return message
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return f"error: process {rank} (pid {failure.pid}) was killed by {name}"
    return f"error: process {rank} (pid {failure.pid}) failed\n{message}"


def _message_of(failure: Any) -> str:
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
