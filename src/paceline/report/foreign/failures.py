"""Why a run stopped or never started, where the log says so, and what to do about it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.report.facts.facts import Failed
from paceline.report.foreign.run import ForeignRun

_ERROR = re.compile(r"^\W*([\w.]*(?:Error|Exception|Interrupt|SystemExit)(?::.*|\s*$))")
_SIGNAL = re.compile(r"((?:exited on|received|caught) signal.*|Killed|Segmentation fault.*)", re.I)


@dataclass(frozen=True)
class _Kind:
    pattern: re.Pattern[str]
    name: str
    remedy: str
    is_of_start: bool = False
    """It cannot happen to a program that already trains."""


_KINDS = (
    _Kind(
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|OOM when allocating|ResourceExhausted"
            r"|CUDA_ERROR_OUT_OF_MEMORY|cannot allocate memory|MemoryError|oom-kill|Out Of Memory",
            re.IGNORECASE,
        ),
        "it ran out of memory",
        "a smaller batch for each process, a smaller model or 16-bit precision; or a device with "
        "more memory",
    ),
    _Kind(
        re.compile(r"There are not enough slots available|more processes than the number of slots"),
        "mpirun was asked for more processes than it has slots for",
        "write `slots=N` behind each host in the host file, or start fewer processes (`-np`), or "
        "allow more than there are cores (`--oversubscribe`)",
        is_of_start=True,
    ),
    _Kind(
        re.compile(
            r"Could not resolve hostname|Name or service not known|gaierror|Unknown host"
            r"|unknown host|Temporary failure in name resolution|nodename nor servname"
        ),
        "a host's name is not known to the machine that looked for it",
        "check the name, or use addresses: every host must find every other (`getent hosts NAME`)",
    ),
    _Kind(
        re.compile(r"Permission denied \(publickey|Host key verification failed"),
        "ssh could not log in to a host",
        "log in once by hand with the same key: ssh HOST true",
        is_of_start=True,
    ),
    _Kind(
        re.compile(r"ModuleNotFoundError|No module named|ImportError"),
        "a Python package is missing",
        "install it into the environment that starts the training, on every host",
        is_of_start=True,
    ),
    _Kind(
        re.compile(r"No such file or directory|FileNotFoundError|NotFoundError|does not exist"),
        "a file is missing",
        "check the path, from the machine that trains: every host needs the data at the same place",
    ),
    _Kind(
        re.compile(r"Address already in use|EADDRINUSE"),
        "the port is taken, perhaps by an earlier run that still lives",
        "end the earlier run, or choose another port",
    ),
    _Kind(
        re.compile(r"No space left on device"),
        "the disk is full",
        "free some space, or write checkpoints elsewhere",
    ),
    _Kind(
        re.compile(r"no CUDA-capable device|CUDA driver version is insufficient|No CUDA GPUs are"),
        "no device could be used",
        "check `nvidia-smi` on the host, and that the driver fits the library",
    ),
)
_OF_START = {kind.name for kind in _KINDS if kind.is_of_start}
HINTS = (
    *("Error", "Exception", "Interrupt", "SystemExit", "signal", "Killed", "fault", "not "),
    *("No ", "Unknown", "unknown", "Host key", "Permission denied", "Address already", "EADDR"),
    *("emory", "OOM", "oom-kill", "ResourceExhausted", "slots", "failure"),
)
"""One of these is in every line that could tell of a failure."""
_LONGEST = 200
_HARMLESS = re.compile(
    r"^\W*(?:WARNING|warn|rm:|ls:|cat:|mkdir:)|Warning:|\b(?:WARNING|WARN|INFO|DEBUG)\b\s*[-|:\]]",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^\s*(?:#|//|(?:raise|except|assert|return|import|if|elif|while)\b(?!:)|\w*print\w*\()"
)
"""A traceback shows source, and some programs print their own."""


def failure_in(line: str) -> Failed | None:
    """What a line tells of an end; None for every other line."""
    if not any(map(line.__contains__, HINTS)) or _HARMLESS.search(line) or _CODE.match(line):
        return None
    match = _ERROR.match(line) or _SIGNAL.search(line)
    told = (match[1] if match else line).strip()[:_LONGEST]
    for kind in _KINDS:
        if kind.pattern.search(line):
            return Failed(told, kind.name, kind.remedy)
    return Failed(told) if match else None


class Failures:
    """The last line of a traceback counts only when no step follows it."""

    def __init__(self) -> None:
        self._found: Failed | None = None

    def look_at(self, line: str) -> None:
        found = failure_in(line)
        # `mpirun noticed that ... exited on signal` follows the reason and says less.
        if found is not None and (found.kind or not (self._found and self._found.kind)):
            self._found = found

    def went_on(self, run: ForeignRun) -> None:
        """Another start into the same log, or a warning: the run itself kept training."""
        if self._found:
            run.notes.append(f"in the middle of the log, while training went on: {self._told}")
        self._found = None

    @property
    def found(self) -> Failed | None:
        return self._found

    @property
    def _told(self) -> str:
        return self._found.line if self._found else ""

    def ended(self, run: ForeignRun) -> None:
        found, self._found = self._found, None
        if found and run.step and found.kind in _OF_START:
            run.notes.append(f"another start into the same log failed: {found.line}")
        else:
            run.failure = found or run.failure


FAILED_START = "a program that did not start training"
_SETTING = re.compile(
    r"\b(batch[_-]?size\w*|workers|num_workers|arch|model|dtype|precision|world[_-]?size|np|data\w*)"
    r"\s*[=:]\s*'?([\w./+-]+)"
)
_MOST_SETTINGS = 12


def read_failed_start(path: Path, lines: Iterator[str]) -> list[ForeignRun]:
    """A log of no known tool that tells of nothing but a failure of a known kind."""
    failures, run = Failures(), ForeignRun(path, FAILED_START)
    for line in lines:
        failures.look_at(line)
        if "Namespace(" in line or "onfig" in line:
            found = dict(_SETTING.findall(line)[:_MOST_SETTINGS])
            run.config |= {**found, **run.config}
    failures.ended(run)
    return [run] if run.failure is not None and run.failure.kind else []
