"""A conversation with the doctor's probe on one host, over one login."""

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from paceline.doctor import probe as doctor_probe
from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, login_failure, ssh_command

# The program comes first on standard input, then the questions.
_BOOTSTRAP = (
    "import sys; sys.path = [p for p in sys.path if p]; i = sys.stdin.buffer; "
    "exec(compile(i.read(int(i.readline())).decode(), 'probe', 'exec'))"
)
_START_SECONDS = 30.0
_NUM_CLOCK_READINGS = 5


class LostError(Exception):
    """The host does not answer; says why and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Session:
    """Ask questions one at a time. Raises `LostError` when the host stops answering."""

    def __init__(self, host: Host, needed: Sequence[str] = ()) -> None:
        """`needed`: directories that a container there must let its Python see."""
        self.host = host
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        command = ssh_command(host, host.python_words(["-u", "-c", _BOOTSTRAP], needed))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self._process.stdout is not None  # noqa: S101
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        program = Path(doctor_probe.__file__).read_text(encoding="utf-8")
        self._write(f"{len(program.encode())}\n{program}")

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            if line.startswith(doctor_probe.MARK):
                self._lines.put(line[len(doctor_probe.MARK) :])
        self._lines.put(None)

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None  # noqa: S101
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except OSError:  # it ended; the reason is found when its answer is missing
            return

    def ask(self, do: str, timeout_seconds: float = _START_SECONDS, **question: Any) -> Any:
        self._write(json.dumps({"do": do, **question}) + "\n")
        try:
            line = self._lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise LostError(
                f"no answer to '{do}' within {timeout_seconds:.0f} s", "is the host overloaded?"
            ) from None
        if line is None:
            self._lines.put(None)
            raise self._why()
        answer = json.loads(line)
        if "failed" in answer:
            raise LostError(f"its answer to '{do}' is {answer['failed']}", "is its Python whole?")
        return answer

    def clock_offset(self) -> tuple[float, float]:
        """(how far this host's clock is ahead of ours, how far that may be wrong) in seconds."""
        best = (0.0, float("inf"))
        for _ in range(_NUM_CLOCK_READINGS):
            sent_at, began = time.time(), time.perf_counter()
            there = self.ask("clock")["time"]
            trip_seconds = time.perf_counter() - began
            best = min(best, (there - (sent_at + trip_seconds / 2), trip_seconds / 2), key=_error)
        return best

    def _why(self) -> LostError:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip()
        failure = login_failure(Answer(self.host, code, "", said))
        if failure is not None:
            return LostError(failure.what.removeprefix(f"{self.host.name}: "), failure.fix)
        if code in (126, 127) and self.host.container is not None:
            return LostError(
                f"the image {self.host.container.image} has no Python {self.host.python}",
                "correct 'python' in the hosts file: it is looked for in the container",
            )
        if code in (126, 127):
            return LostError(
                f"there is no Python {self.host.python}",
                "correct 'python' in the hosts file, or make one: paceline hosts push",
            )
        last = said.splitlines()[-1] if said else f"exit code {code}"
        return LostError(
            f"{self.host.python} failed: {last}",
            f"Python 3.11 or newer is needed there, as here ({sys.executable})",
        )

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101
        try:
            self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _error(reading: tuple[float, float]) -> float:
    return reading[1]
