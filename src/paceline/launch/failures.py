"""Who failed first, and why: judged from how the processes of a world ended.

Pure functions of plain data.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import EXIT_USER_ERROR
from paceline.launch.hang import RankState

_SECOND_HAND = (
    "connection closed by peer",
    "connection reset",
    "broken pipe",
    "timed out waiting",
    "connection refused",
    "socket",
    "application timeout",
    "distnetworkerror",
    "rendezvous",
    "ended silently",
    "nccl error",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "nccl watchdog",
    "collective operation timeout",
)
"""What a process says whose neighbour failed."""

_FIRST_HAND = ("ncclunhandledcudaerror", "unhandled cuda error", "out of memory")
"""What it says beside such words when its own device failed."""


_TRACEBACK = "Traceback (most recent call last)"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""With which torch begins the lines of a script's traceback."""


@dataclass(frozen=True)
class Failure:
    """How the processes of one host ended."""

    host: str
    rank: int | None
    exit_code: int
    message: str
    memory_kills: int = 0
    state: RankState | None = None
    role: str = ""
    """Of the process, where it has one: 'server 0'."""

    @property
    def is_mistake(self) -> bool:
        """The user's to put right: trying again would fail again."""
        return self.exit_code == EXIT_USER_ERROR

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for failures that trying again will not cure."""
        step = self.state.step if self.state else None
        last_line = self.message.strip().rpartition("\n")[2]
        without_numbers = re.sub(r"0x[0-9a-f]+|[0-9]+", "#", last_line)  # of processes, addresses
        return self.rank, self.exit_code, step, without_numbers

    @property
    def text(self) -> str:
        name = f"{self.role} (rank {self.rank})" if self.role else f"rank {self.rank}"
        who = f"{name} on {self.host}" if self.rank is not None else self.host
        where = f" in {self.state.phase} at step {self.state.step:,}" if self.state else ""
        if self.exit_code < 0:
            name = signal.Signals(-self.exit_code).name
            return f"{who} was killed by {name}{where}{self._out_of_memory()}{self._aborted()}"
        return f"{who} failed{where}\n{self.message}".rstrip()

    def _aborted(self) -> str:
        if self.exit_code != -signal.SIGABRT:
            return ""
        return " (it ended itself, as NCCL's watchdog does when others do not answer: see its log)"

    def _out_of_memory(self) -> str:
        if self.exit_code != -signal.SIGKILL:
            return ""
        remedy = "lower batch.micro, or start fewer processes on that host"
        if self.memory_kills:
            return f": the host is out of memory; {remedy}"
        return f" (by hand, or by a kernel that is out of memory: then {remedy})"


def without_rank(line: str) -> str:
    return _RANK_PREFIX.sub("", line)


def final_words(message: str) -> str:
    """What a traceback ends with: the error itself, without the lines of code before it."""
    lines = [without_rank(line) for line in message.splitlines()]
    code = [n for n, line in enumerate(lines) if line.startswith("  ")]
    if not any(_TRACEBACK in line for line in lines) or not code:
        return message
    return "\n".join(lines[code[-1] + 1 :]) or message


def is_second_hand(message: str) -> bool:
    """Whether a process failed because another one was gone."""
    said = final_words(message).lower()
    if any(words in said for words in _FIRST_HAND):
        return False
    return any(words in said for words in _SECOND_HAND)


def echo_level(exit_code: int, message: str) -> int:
    """How likely an end only followed from another one's: 0 not, 2 by its own words.

    NCCL's watchdog aborts a process whose neighbours do not answer, and leaves no words; but an
    abort may have causes of its own.
    """
    if exit_code > 0 and is_second_hand(message):
        return 2
    return 1 if exit_code == -signal.SIGABRT else 0


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The first that is not merely the echo of another one's end."""

    def order(failure: Failure) -> tuple[bool, int, bool]:
        echo = echo_level(failure.exit_code, failure.message)
        return (not failure.is_mistake, echo, failure.exit_code >= 0)

    return min(failures, key=order)


def message_of(failure: Any) -> str:
    """What the worker recorded: a user's message without its type, else the traceback."""
    data = failure.error_file_data
    recorded = data.get("message") if isinstance(data, dict) else None
    if not isinstance(recorded, dict):
        return str(failure.message)
    if failure.exitcode == EXIT_USER_ERROR:
        return str(recorded["message"]).partition(": ")[2]
    return str(recorded.get("extraInfo", {}).get("py_callstack", recorded["message"]))
