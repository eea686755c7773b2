"""Starts agents, by way of a process that imports torch while the launcher still checks.

The side of the launcher and of the supervisor. Neither torch here nor anything else that is slow
to import: the sooner the other process starts, the better.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.launch.agent import AgentOrder

FORKSERVER = "paceline.launch.forkserver"
LENGTH_BYTES = 4


class AgentStarter:
    """A server with a certain environment, started at once and again whenever it is gone."""

    def __init__(self, run: str, environment: dict[str, str], host: str = "") -> None:
        """Run and host are for people who look at `ps`."""
        self._words = [run, host]
        self.environment = environment
        self._start_server()

    def __enter__(self) -> "AgentStarter":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _start_server(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-u", "-m", FORKSERVER, *self._words, str(theirs.fileno())],
                env={**os.environ, **self.environment},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._server.pid

    def settle(self, environment: dict[str, str]) -> None:
        """From now on with this environment, which a process gets only at its start."""
        if environment != self.environment:
            self.close()
            self.environment = environment
            self._start_server()

    def start(
        self, order: "AgentOrder", output: IO[bytes] | None = None, listener: int | None = None
    ) -> "RunningAgent":
        """`output`: where it and its workers write; None is where this process does."""
        if self._server.poll() is not None:
            self.close()
            self._start_server()
        mine, theirs = socket.socketpair()
        files = {"status": theirs.fileno()}
        if output is not None:
            files["output"] = output.fileno()
        if listener is not None:
            files["listener"] = listener
        with theirs:
            self._send({"do": "start", "order": asdict(order), "files": list(files)}, files)
        return RunningAgent(self, mine)

    def _send(self, request: dict[str, object], files: dict[str, int]) -> None:
        text = json.dumps(request).encode()
        length = len(text).to_bytes(LENGTH_BYTES, "big")
        try:
            socket.send_fds(self._control, [length], list(files.values()))
            self._control.sendall(text)
        except OSError:  # the server is gone, which the agent's status tells
            return

    def kill_agent(self) -> None:
        self._send({"do": "kill"}, {})

    def kill(self) -> None:
        """The server with its agent and the agent's workers."""
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        self._control.close()
        self.kill()


class RunningAgent:
    """As far as its starter knows it: a process that is not its child."""

    def __init__(self, starter: AgentStarter, status: socket.socket) -> None:
        self._starter = starter
        self._ended = threading.Event()
        self._code = 1
        self.pid: int | None = None
        """None as long as it is not started, because torch is still being imported."""
        threading.Thread(target=self._listen, args=(status,), daemon=True).start()

    def _listen(self, status: socket.socket) -> None:
        with status, status.makefile() as lines:
            for line in lines:
                if self.pid is None:
                    self.pid = int(line)
                else:
                    self._code = int(line)
        self._ended.set()

    def poll(self) -> int | None:
        return self._code if self._ended.is_set() else None

    def wait(self) -> int:
        """The exit code, negative for a signal; 1 when its server has died."""
        self._ended.wait()
        return self._code

    def wait_for(self, seconds: float) -> int | None:
        """The same; None where it still runs after so many seconds."""
        return self._code if self._ended.wait(seconds) else None

    def kill(self) -> None:
        """And with it its workers."""
        if self.pid is None:
            self._starter.kill()
        else:
            self._starter.kill_agent()
