"""The processes of a user's script on one host, as torch's elastic agent sees them.

Each is forked from the agent while that has no threads yet, waits for its variables (rank, world
size) and then becomes the script: so the kernel ends it with its agent, and `ps` shows what the
user would have typed. What it prints goes through `output.py`; a small file tells its number, and
at the end its exit code.
"""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from paceline.launch.script.remote.output import OutputReader
from paceline.lifetime import die_with_parent

_LAST_OUTPUT_SECONDS = 2.0
_NOT_STARTED = 127


@dataclass(frozen=True)
class ScriptOrder:
    """What a host must know to start its processes of a script."""

    words: tuple[str, ...]
    """The interpreter, and what it executes."""
    folder: str
    """Of the round: where each process's number and exit code are told."""
    unset: tuple[str, ...] = ()
    """Variables that the agent has and the script must not."""

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "ScriptOrder":
        return cls(tuple(document["words"]), document["folder"], tuple(document["unset"]))


class ScriptWorker:
    def __init__(self, order: ScriptOrder, rank: int, pipes: list[int]) -> None:
        """`pipes`: ends that are this process's alone; the new ones are added."""
        reading, self._variables = os.pipe()
        self._said, writing = os.pipe()
        pipes += [self._variables, self._said]
        self._file = Path(order.folder) / f"worker-{rank:05d}.json"
        self._rank, self._code = rank, None
        self._output: OutputReader | None = None
        agent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _become_script(order, reading, writing, agent, pipes)
        os.close(reading)
        os.close(writing)

    _code: int | None

    @property
    def pid(self) -> int:
        return self._pid

    def begin(self, variables: dict[str, str]) -> None:
        self._output = OutputReader(self._said, self._rank)
        self._tell()
        try:
            with os.fdopen(self._variables, "w") as pipe:
                json.dump({**variables, **_as_torchrun(variables)}, pipe)
        except BrokenPipeError:  # it was killed meanwhile, which the next look at it will tell
            return

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self._tell()
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # not yet waited for, so the number is still its own
            os.kill(self._pid, number)

    @property
    def last_words(self) -> str:
        """After its end: of what it printed, what most likely tells why."""
        if self._output is None:
            return ""
        self._output.wait(_LAST_OUTPUT_SECONDS)
        return self._output.last_words

    def _tell(self) -> None:
        facts = {"rank": self._rank, "pid": self._pid, "code": self._code}
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(facts), encoding="utf-8")
            new.replace(self._file)
        except OSError:  # a full disk; the exit code still reaches the agent
            return


def prepare_scripts(
    document: dict[str, Any], num_procs: int, first_rank: int
) -> Sequence[ScriptWorker]:
    order, pipes = ScriptOrder.from_document(document), list[int]()
    return [ScriptWorker(order, first_rank + number, pipes) for number in range(num_procs)]


def _as_torchrun(variables: dict[str, str]) -> dict[str, str]:
    """What torchrun sets beside rank and world size."""
    return {
        "ROLE_NAME": "default",
        "ROLE_RANK": variables["RANK"],
        "ROLE_WORLD_SIZE": variables["WORLD_SIZE"],
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _become_script(
    order: ScriptOrder, reading: int, writing: int, agent: int, pipes: list[int]
) -> NoReturn:
    try:
        die_with_parent(agent)
        os.setsid()
        for pipe in pipes:
            os.close(pipe)
        with os.fdopen(reading) as told:
            kept = {name: value for name, value in os.environ.items() if name not in order.unset}
            variables = {**kept, **json.load(told)}
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, stream in ((nothing, 0), (writing, 1), (writing, 2)):
            os.dup2(number, stream)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(order.words[0], order.words, variables)  # noqa: S606  (the user's own words)
    except BaseException as error:
        os.write(2, f"{order.words[0]} does not start: {error}\n".encode())
    finally:
        os._exit(_NOT_STARTED)
