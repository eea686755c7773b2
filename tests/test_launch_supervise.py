"""The process that stands for a run on a host, spoken to as the launcher does, without ssh."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ADDRESS = "127.0.0.5"


class Line:
    """Both ends of the talk."""

    def __init__(self, run: Path, name: str = "a", silence_seconds: float = 30) -> None:
        words = [sys.executable, "-m", "paceline.launch.remote.supervisor", name, str(run)]
        self.temporary = run.parent / f"tmp-{name}"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        who = {"name": name, "address": ADDRESS, "run": str(run), "token": "t"}
        self.say(do="warm", **who, num_procs=1, interface="lo", environment={})
        self.say(do="hello", **who, silence_seconds=silence_seconds)

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")

    def hear(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["kind"] == kind:
                return message
        raise AssertionError(f"it ended without saying '{kind}'")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    opened = Line(tmp_path / "run")
    yield opened
    opened.close()


def test_it_says_hello_and_which_run_directories_are_one(line: Line, tmp_path: Path) -> None:
    hello = line.hear("hello")
    assert hello["num_devices"] == 0  # tests hide them: see conftest
    (tmp_path / "run" / ".host-t-@launcher").touch()
    line.say(do="look")
    assert line.hear("looked")["tokens"] == ["@launcher", "a"]


def test_it_listens_on_the_private_address_alone(line: Line) -> None:
    line.hear("hello")
    line.say(do="listen")
    port = line.hear("listening")["port"]
    with socket.create_connection((ADDRESS, port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_it_ends_and_leaves_nothing_when_its_line_is_closed(tmp_path: Path) -> None:
    line = Line(tmp_path / "run")
    line.hear("hello")
    line.close()
    assert line.process.returncode == 0
    assert not list((tmp_path / "run").iterdir())
    assert not list(line.temporary.iterdir())


def test_it_ends_when_the_launcher_falls_silent(tmp_path: Path) -> None:
    line = Line(tmp_path / "run", silence_seconds=2)
    line.hear("hello")
    assert line.process.wait(20) == 0
    line.close()


def test_a_new_one_ends_an_earlier_one_of_the_same_host_and_run(tmp_path: Path) -> None:
    first, other = Line(tmp_path / "run"), Line(tmp_path / "run", name="b")
    first.hear("hello")
    other.hear("hello")
    first.process.send_signal(19)  # SIGSTOP: it could not end by itself
    second = Line(tmp_path / "run")
    second.hear("hello")
    assert first.process.wait(20) == -9
    assert psutil.pid_exists(other.process.pid)
    for line in (first, second, other):
        line.close()


def test_one_that_is_killed_leaves_nothing_in_the_temporary_directory(tmp_path: Path) -> None:
    line = Line(tmp_path / "run")
    line.hear("hello")
    assert list(line.temporary.iterdir())
    line.process.kill()
    line.close()
    until = time.monotonic() + 20
    while any(line.temporary.iterdir()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(line.temporary.iterdir())
