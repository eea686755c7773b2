"""A command on a terminal of its own, which can be closed as a window is closed."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path


def _take_terminal() -> None:
    """A hang-up ends what is in a window, even where the tests themselves run under `nohup`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass
class Terminal:
    process: subprocess.Popen[bytes]
    master: int
    shown: str = ""

    @classmethod
    def start(cls, command: list[str], cwd: Path, environment: dict[str, str]) -> "Terminal":
        """The command leads the session of a new terminal, as a shell in a window does."""
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 100))
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509
        )
        os.close(slave)
        return cls(process, master)

    def type_line(self, text: str) -> None:
        os.write(self.master, text.encode() + b"\n")

    def wait_for(self, text: str, seconds: float = 120.0) -> str:
        """Read until this is shown, or the command has ended; everything that was shown."""
        until = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < until:
            readable, _, _ = select.select([self.master], [], [], 1.0)
            try:
                read = os.read(self.master, 65536) if readable else b""
            except OSError:  # EIO: nobody is left on the other side
                break
            self.shown += read.decode(errors="replace")
        assert text in self.shown, self.shown[-3000:]
        return self.shown

    def close(self) -> None:
        """The window is gone: the kernel hangs up the line and sends SIGHUP to its session."""
        os.close(self.master)
        self.master = -1

    def end(self) -> None:
        """Whatever a failed test left running."""
        if self.master >= 0:
            self.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
