"""A process per host that has imported torch once, and forks the agent of every round from there.

Started by `starter.AgentStarter` as `python -u -m paceline.launch.forkserver RUN HOST SOCKET`, with
the settings of `machine.tuning` in its environment. It has no threads, opens nothing and uses no
device, so that what it forks begins clean; when a round has failed, the next one needs no import.
Where forking is not safe (`workers.CAN_FORK`) it imports nothing and starts every agent anew.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from paceline.launch import agent
from paceline.launch.agent import AgentOrder
from paceline.launch.starter import FORKSERVER, LENGTH_BYTES
from paceline.launch.workers import CAN_FORK
from paceline.lifetime import die_with_parent
from paceline.machine.process_title import show_as_module
from paceline.machine.signals import survive
from paceline.terminal import outlive_terminal

_MOST_FILES = 3
_PRELOADED = ("paceline.launch.elastic", "paceline.train.attempt", "paceline.train.worker")


def main() -> None:
    die_with_parent()
    outlive_terminal()  # so that nothing that is forked from here fails with it
    survive(signal.SIGTERM)  # the workers save; this process outlives them
    control = socket.socket(fileno=int(sys.argv[3]))
    if CAN_FORK:
        preload()
    Server(control).serve()


def preload() -> None:
    """What every agent and every worker imports."""
    # If it fails, it fails again in the agent, whose output somebody reads.
    with contextlib.suppress(Exception):
        for module in _PRELOADED:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # else the first collection in every child writes to, and so copies, all of it


class Server:
    """One agent at a time: starts it, tells its number and its exit code, kills it on request."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._child: int | None = None
        self._status: socket.socket | None = None
        self._woken, self._waker = socket.socketpair()

    def serve(self) -> NoReturn:
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        survive(signal.SIGCHLD)  # a handler must be there for the wake-up to happen
        while True:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._look_at_child()
            if self._control in ready:
                self._answer()

    def _answer(self) -> None:
        request, files = receive(self._control)
        if request is None:  # nobody is left who could ask; the agent dies with this process
            os._exit(0)
        if request["do"] == "kill" and self._child is not None:
            os.kill(self._child, signal.SIGKILL)
        elif request["do"] == "start":
            self._start(
                AgentOrder(**request["order"]), dict(zip(request["files"], files, strict=True))
            )

    def _start(self, order: AgentOrder, files: dict[str, int]) -> None:
        self._status = socket.socket(fileno=files.pop("status"))
        order = replace(order, listener=files.get("listener"))
        self._child = self._fork(order, files) if CAN_FORK else _spawn(order, files)
        for number in files.values():
            os.close(number)
        self._status.send(f"{self._child}\n".encode())

    def _fork(self, order: AgentOrder, files: dict[str, int]) -> int:
        server = os.getpid()
        child = os.fork()
        if child == 0:
            with _reporting_errors():
                self._become_agent(order, files, server)
        return child

    def _become_agent(self, order: AgentOrder, files: dict[str, int], server: int) -> None:
        die_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for mine in (self._control, self._status, self._woken, self._waker):
            if mine is not None:
                mine.close()
        show_as_module(agent.MODULE, instead_of=FORKSERVER)
        if "output" in files:
            os.dup2(files["output"], 1)
            os.dup2(files["output"], 2)
            os.close(files["output"])
        agent.run_agent(order, agent.MODULE)

    def _look_at_child(self) -> None:
        if self._child is None or self._status is None:
            return
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid:
            with contextlib.suppress(OSError), self._status:
                self._status.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            self._child = self._status = None


@contextlib.contextmanager
def _reporting_errors() -> Iterator[None]:
    """A forked process must not return into the server's loop."""
    try:
        yield
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _spawn(order: AgentOrder, files: dict[str, int]) -> int:
    output = files.get("output")
    return subprocess.Popen(
        [sys.executable, "-u", "-m", agent.MODULE, order.run, order.text()],
        stdout=output,
        stderr=output,
        pass_fds=[order.listener] if order.listener is not None else [],
    ).pid


def receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """A length with open files attached, then that much JSON."""
    length, files, _, _ = socket.recv_fds(control, LENGTH_BYTES, _MOST_FILES)
    left, text = int.from_bytes(length, "big"), b""
    while len(text) < left:
        part = control.recv(left - len(text))
        if not part:
            return None, files
        text += part
    return (json.loads(text) if text else None), files


if __name__ == "__main__":
    main()
