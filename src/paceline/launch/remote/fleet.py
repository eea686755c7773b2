"""All hosts of a run as the launcher sees them: lines kept open, messages sorted, output merged."""

import os
import queue
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from paceline.errors import Say, UserError
from paceline.hosts.file import Host
from paceline.launch.hang import RankState
from paceline.launch.remote.link import HostLink, Message, is_goodbye
from paceline.launch.remote.program import Program
from paceline.record.schema import RunDirectory
from paceline.terminal import printable

LAUNCHER = "@launcher"
"""Marks the run directory of the launcher; no host can be called that."""
_TICK_SECONDS = 0.25
_HELLO_SECONDS = 90.0
_TRY_AGAIN_SECONDS = 5.0
_LEFT_SECONDS = 120.0
"""A host that was told to leave is on its way out, and answers for a while."""
_PASSED_ON = (
    "NCCL_",
    "GLOO_",
    "PACELINE_PRACTICE",
    "PACELINE_LINK",
    "PACELINE_KERNEL",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "CUDA_VISIBLE_DEVICES",
)


class HostLog:
    """Everything a host's processes print, in RUN/logs/HOST.log; a lost directory loses lines."""

    def __init__(self, run: RunDirectory, host: str) -> None:
        self._path = run.path / "logs" / f"{host}.log"

    def write(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{stamp} {printable(text)}\n")
        except OSError:
            return


class Fleet:
    def __init__(self, program: Program, hosts: Sequence[Host], say: Say) -> None:
        run = program.run
        self.say, self._run, self._program = say, run, program
        self._num_procs, self._silence_seconds = program.num_procs, program.guard.hang_seconds
        self._inbox: queue.Queue[tuple[HostLink, int, Message]] = queue.Queue()
        self._token = uuid.uuid4().hex[:12]
        self.mark = run.path / f".host-{self._token}-{LAUNCHER}"
        self.links = [
            HostLink(host, self._warm(host), self._hello(host), self._inbox) for host in hosts
        ]
        self._logs = {host.name: HostLog(run, host.name) for host in hosts}

    def _warm(self, host: Host) -> Message:
        return {
            "do": "warm",
            "name": host.name,
            "run": str(self._run.path),
            "address": host.private_address,
            "num_procs": self._num_procs or host.devices or 0,
            "interface": None,
            "environment": passed_on(host),
            **self._program.hello_fields(),
        }

    def _hello(self, host: Host) -> Message:
        return {
            "do": "hello",
            "name": host.name,
            "address": host.private_address,
            "run": str(self._run.path),
            "token": self._token,
            "silence_seconds": self._silence_seconds,
            **self._program.hello_fields(),
        }

    def __enter__(self) -> "Fleet":
        self.mark.touch()
        return self

    def __exit__(self, *_error: object) -> None:
        for link in self.links:
            link.send(do="bye")
        for link in self.links:
            link.part(seconds=40 if link.is_ready else 5)
        self.mark.unlink(missing_ok=True)

    def open_all(self) -> None:
        """So that torch is imported on the hosts while they are still being examined."""
        for link in self.links:
            link.open()

    def connect_all(self) -> None:
        """Exactly the hosts of the file, or nothing."""
        for link in self.links:
            link.greet()
        until = time.monotonic() + _HELLO_SECONDS
        while any(link.process is not None and not link.is_ready for link in self.links):
            if time.monotonic() > until:
                break
            self.pump()
        missing = [link for link in self.links if not link.is_ready]
        if missing:
            problems = [link.why_not() for link in missing]
            raise UserError(
                "the run does not start, because not every host answers\n"
                + "\n".join(f"  {what}\n    fix: {fix}" for what, fix in problems),
                "put that right, or take the host out of the hosts file; "
                "`paceline hosts check` looks closer",
            )

    @property
    def ready(self) -> list[HostLink]:
        return [link for link in self.links if link.is_ready and not link.is_leaving]

    def pump(self) -> None:
        """Take in what has been said, keep the lines alive, and drop those that are silent."""
        try:
            self._take(*self._inbox.get(timeout=_TICK_SECONDS))
            while True:
                self._take(*self._inbox.get_nowait())
        except queue.Empty:
            pass
        for link in self.links:
            if link.process is None:
                continue
            link.ping()
            if link.is_ready and link.silent_seconds > self._silence_seconds:
                self.note(link, f"no answer for {link.silent_seconds:.0f} s; taken for lost")
                link.drop()
            elif not link.is_ready and time.monotonic() - link.since > _HELLO_SECONDS:
                link.drop()  # and tried again later

    def _take(self, link: HostLink, number: int, message: Message) -> None:
        if number != link.number:
            return
        if is_goodbye(message):
            was_ready = link.is_ready
            link.drop()
            if was_ready:
                said = f" ({link.complaints[-1]})" if link.complaints else ""
                self.note(link, f"the line is gone{said}")
            return
        link.take(message)
        if message["kind"] == "output":
            self.note(link, message["text"], message.get("rank"))

    def note(self, link: HostLink, text: str, rank: int | None = None) -> None:
        """What was said there; `rank` where it is known which process said it."""
        self._logs[link.name].write(text if rank is None else f"[rank {rank}] {text}")
        who = link.name if rank is None else f"{link.name} rank {rank}"
        self.say(printable(f"[{who}] {text}"))

    def wait(
        self, links: Sequence[HostLink], done: Callable[[HostLink], bool], most: float
    ) -> bool:
        """Until all of these are done or lost; False if that took too long or one was lost."""
        until = time.monotonic() + most
        while time.monotonic() < until:
            if all(done(link) or not link.is_ready for link in links):
                break
            self.pump()
        return all(done(link) and link.is_ready for link in links)

    def call_back_the_lost(self) -> None:
        """Try again to reach hosts that are gone."""
        for link in self.links:
            wait = _LEFT_SECONDS if link.is_leaving else _TRY_AGAIN_SECONDS
            if link.process is None and time.monotonic() - link.since > wait:
                link.connect()

    def look(self, links: Sequence[HostLink]) -> bool:
        """Ask for each host's newest checkpoint and whose run directory it shares."""
        for link in links:
            link.looked = None
            link.send(do="look")
        return self.wait(links, lambda link: link.looked is not None, 30)

    def end_round(self, number: int) -> None:
        links = [link for link in self.links if link.is_ready]
        for link in links:
            link.send(do="end_round")
        self.wait(links, lambda link: link.round_over >= number, 15)

    def ask(self, links: Sequence[HostLink], **message: Any) -> None:
        for link in links:
            link.send(**message)


def passed_on(host: Host) -> dict[str, str]:
    """What the user has set here and wants there."""
    variables = {n: v for n, v in os.environ.items() if n.startswith(_PASSED_ON)}
    return variables if host.data is None else {**variables, "PACELINE_DATA": host.data}


def states_of(links: Sequence[HostLink]) -> list[RankState]:
    return [RankState.of(link.name, beat) for link in links for beat in link.beats]


def in_order(links: Sequence[HostLink]) -> list[HostLink]:
    """As in the hosts file, unless another one alone has the newest checkpoint: the first host's
    first process is the one that reads it."""
    best = max((_newest(link) for link in links), default=-1)
    holders = [link for link in links if _newest(link) == best]
    first = links[0] if links[0] in holders else holders[0]
    return [first, *(link for link in links if link is not first)]


def _newest(link: HostLink) -> int:
    step = (link.looked or {}).get("newest_step")
    return -1 if step is None else int(step)


def savers_among(links: Sequence[HostLink]) -> list[HostLink]:
    """One host for each run directory there is: directories that are not shared get a copy of
    every checkpoint, so that the loss of a host does not lose the run."""
    savers: list[HostLink] = []
    for link in links:
        if not any(saver.name in link.sees for saver in savers):
            savers.append(link)
    return savers


def sees_launcher(link: HostLink) -> bool:
    return LAUNCHER in link.sees
