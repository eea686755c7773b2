"""The launcher's line to one host: an ssh process with a supervisor at the other end.

Keeps what the host last said; decides nothing.
"""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, by_hand, login_failure, ssh_command
from paceline.terminal import printable

Message = dict[str, Any]
PING_SECONDS = 2.0
_GONE = "gone"


@dataclass
class HostLink:
    host: Host
    warm: Message
    """What the supervisor is told first: enough to have torch imported there."""
    hello: Message
    """What it is told when the run begins."""
    inbox: "queue.Queue[tuple[HostLink, int, Message]]"
    process: subprocess.Popen[str] | None = None
    number: int = 0
    """Counts connections: what an earlier one still had to say is not heard."""
    is_ready: bool = False
    since: float = 0.0
    """When the state last changed from or to ready, or a connection was tried."""
    heard: float = 0.0
    pinged: float = 0.0
    is_leaving: bool = False
    facts: Message = field(default_factory=dict)
    looked: Message | None = None
    sees: tuple[str, ...] = ()
    """Whose run directory it shares, itself included, as far as it ever told."""
    heard_stop: bool = False
    """It has passed on the wish to stop, and told who was there to hear it."""
    port: int | None = None
    beats: list[Message] = field(default_factory=list)
    stage: Message | None = None
    """What the host does before all its workers tell where they are."""
    exit: Message | None = None
    round_over: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.host.name

    def connect(self) -> None:
        self.open()
        self.greet()

    def greet(self) -> None:
        self.since = self.heard = time.monotonic()
        self.send(**self.hello)

    def open(self) -> None:
        """A line to a supervisor that does nothing yet to the host's files or processes."""
        self.number += 1
        self.is_ready, self.is_leaving, self.since = False, False, time.monotonic()
        self.heard = self.since
        self.complaints, self.exit, self.beats = [], None, []
        run: str = self.hello["run"]
        supervisor = ["-m", "paceline.launch.remote.supervisor", self.name, run]
        words = self.host.python_words(supervisor, needed=[run])
        self.process = subprocess.Popen(
            ssh_command(self.host, words),
            text=True,
            errors="replace",
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for stream, what in ((self.process.stdout, self._hear), (self.process.stderr, self._note)):
            arguments = (stream, self.number)
            threading.Thread(target=what, args=arguments, daemon=True).start()
        self.send(**self.warm)

    def _hear(self, stream: IO[str], number: int) -> None:
        for line in stream:
            try:
                message = json.loads(line)
            except ValueError:
                message = {"kind": "output", "text": line.rstrip("\n")}
            self.inbox.put((self, number, message))
        self.inbox.put((self, number, {"kind": _GONE}))

    def _note(self, stream: IO[str], _number: int) -> None:
        """What ssh itself has to say, and a supervisor that cannot even start."""
        for line in stream:
            self.complaints = [*self.complaints[-20:], line.rstrip("\n")]

    def send(self, **message: Any) -> None:
        if self.process is None or self.process.stdin is None:
            return
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):  # its end is on its way through the inbox
            return

    def ping(self) -> None:
        if time.monotonic() - self.pinged >= PING_SECONDS:
            self.pinged = time.monotonic()
            self.send(do="ping")

    def take(self, message: Message) -> None:
        """Keep what was said; output and endings are the fleet's business."""
        self.heard = time.monotonic()
        kind = message["kind"]
        if kind == "hello":
            self.facts, self.is_ready, self.since = message, True, time.monotonic()
        elif kind == "looked":
            self.looked, self.sees = message, tuple(message["tokens"])
        elif kind == "listening":
            self.port = message["port"]
        elif kind == "pulse":
            self.beats, self.stage = message["beats"], message["stage"]
            self.heard_stop |= message.get("heard_stop", False)
        elif kind == "exited":
            self.exit, self.beats, self.stage = message, message["beats"], None
        elif kind == "round_over":
            self.round_over = message["round"]
        elif kind == "leaving":
            self.is_leaving = True
        elif kind == "problem":
            self.complaints.append(message["text"])

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self.heard

    def drop(self) -> None:
        """End the line; the supervisor ends what runs there."""
        self.is_ready, self.since = False, time.monotonic()
        self.number += 1
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def part(self, seconds: float) -> None:
        """Say goodbye and give the host time to save and clean up."""
        if self.process is None:
            return
        self.send(do="bye")
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.is_ready, self.since = False, time.monotonic()

    def why_not(self) -> tuple[str, str]:
        """What is wrong and what to do, when no supervisor has answered."""
        text = printable("\n".join(self.complaints).strip())
        if "No module named" in text or "not found" in text or "No such file" in text:
            return (
                f"{self.name}: Paceline does not start there with {self.host.python} ({text})",
                "`paceline hosts push` installs it; 'python' in the hosts file says which Python",
            )
        failure = login_failure(Answer(self.host, 255, "", text))
        if failure is None:
            return f"{self.name}: {text or 'no answer'}", f"try by hand: {by_hand(self.host)}"
        return failure.what, failure.fix


def is_goodbye(message: Message) -> bool:
    return bool(message["kind"] == _GONE)


def names_of(links: Sequence[HostLink]) -> str:
    return ", ".join(link.name for link in links)
