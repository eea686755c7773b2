"""A process's part as a server: its door, its record, its end."""

import time
from typing import Any

from paceline.machine.cores import memory_of_process, processes_of_host
from paceline.record.schema import START_UP, RunDirectory
from paceline.record.writer import EventFile
from paceline.settings import Recipe
from paceline.strategies.rendezvous import Rendezvous
from paceline.strategies.servers.server import Server
from paceline.strategies.servers.shared_clock import SharedClock
from paceline.train.measure.practice import asked, pauses_of

_LOOK_SECONDS = 0.1
_LINE_SECONDS = 5.0


class ServerProcess:
    """Beside a chief or a worker in the same process, or alone."""

    def __init__(self, recipe: Recipe, number: int, rank: int, host: str) -> None:
        free = memory_of_process() * processes_of_host()
        clock = SharedClock(pauses_of(rank, asked()))
        self.number, self.rank = number, rank
        self.server = Server(f"server {number} on {host}", recipe, clock, free)
        self._every = recipe.log.every_steps
        self._events: EventFile | None = None
        self._cpu_seconds = 0.0
        self._written, self._written_at = 0, time.monotonic()

    def open(self, rendezvous: Rendezvous) -> None:
        rendezvous.accept(f"server-{self.number}", self.server.let_in)

    def wait_for_weights(self) -> None:
        while self.server.version < 0 and not self.server.is_over.is_set():
            time.sleep(_LOOK_SECONDS)
        self._raise_problem()

    def begin(self, run: RunDirectory, attempt: int, launched_at: float, place: Any) -> None:
        server = self.server
        self._events = EventFile(run.server_events(self.number), attempt)
        server.clock.take()
        start_up = max(time.time() - launched_at, 0.0)
        self._written = server.version
        self._events.write(
            "begin",
            step=server.version,
            rank=self.rank,
            seconds=start_up,
            phases={START_UP: start_up},
            cpu_seconds=self._take_cpu_seconds(),
            shard_bytes=server.shard_bytes,
            **place,
        )

    def look(self) -> bool:
        """Write down what was done, if it is time to; False when all is over."""
        version, now = self.server.version, time.monotonic()
        is_long_ago = now - self._written_at > _LINE_SECONDS
        if version - self._written >= self._every or (version > self._written and is_long_ago):
            self._write_line("steps", version)
        self._raise_problem()
        return not self.server.is_over.is_set()

    def _write_line(self, kind: str, version: int, **more: Any) -> None:
        if self._events is None:
            return
        phases, traffic = self.server.clock.take(), self.server.take_traffic()
        self._events.write(
            kind,
            step=version,
            num_steps=version - self._written,
            seconds=sum(phases.values()),
            phases=phases,
            cpu_seconds=self._take_cpu_seconds(),
            **vars(traffic),
            **more,
        )
        self._written, self._written_at = version, time.monotonic()

    def _take_cpu_seconds(self) -> float:
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        return round(self._cpu_seconds - before, 6)

    def _raise_problem(self) -> None:
        if self.server.problem is not None:
            raise self.server.problem

    def serve(self) -> None:
        """To the end, in a process that is nothing else."""
        while self.look():
            self.server.is_over.wait(_LOOK_SECONDS)

    def note(self, kind: str, **fields: Any) -> None:
        """Of the probes."""
        if self._events is not None:
            self._events.write(kind, **fields)

    def finish(self, reason: str) -> None:
        self._write_line("end", self.server.version, reason=reason)
        if self._events is not None:
            self._events.close()
