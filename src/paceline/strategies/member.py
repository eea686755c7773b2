"""What a process of a run with parameter servers executes, by its roles."""

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from paceline.errors import UserError
from paceline.lifetime import process_started
from paceline.machine.interfaces import interface_used
from paceline.order import WorkerOrder
from paceline.record.schema import RunDirectory
from paceline.settings import Recipe
from paceline.strategies.checkpoint_copies import CheckpointKeeper
from paceline.strategies.chief.process import Chief
from paceline.strategies.rendezvous import Heartbeat, Rendezvous
from paceline.strategies.roles import CHIEF, SERVER, Roles
from paceline.strategies.servers.process import ServerProcess
from paceline.strategies.worker import Worker
from paceline.task_finder import find_task
from paceline.train.attempt import Attempt
from paceline.train.guard import naming_lack_of_memory
from paceline.train.measure.probes import Place, own_place, place_among, start_probes
from paceline.train.watchdog import Pulse
from paceline.world import World, choose_device, local_rank, rank_in_world, serve_store

_STORE_SECONDS = 600.0
_TOKEN_SECONDS = 60.0
"""Shared storage shows a new file a little late."""


class Member:
    """One process: its roles, and the others."""

    def __init__(
        self, recipe: Recipe, run: RunDirectory, order: WorkerOrder, stop_asked: Callable[[], bool]
    ) -> None:
        self.recipe, self.run, self.order, self.stop_asked = recipe, run, order, stop_asked
        self.roles = Roles(order.roles, recipe.strategy.chief_trains)
        self.rank = rank_in_world(order)
        host = order.host or socket.gethostname()
        self.launched_at = order.launched_at or process_started()
        self._store = _serve_store(order)
        self.rendezvous = _rendezvous(order)
        trains = self.roles.trains(self.rank) or self.roles.has(self.rank, CHIEF)
        device = choose_device(recipe.device if trains else "cpu", self._device_number())
        self.world = World(
            self.rank, 1, device, saves=self.rank == 0, attempt=order.attempt, host=host
        )
        self.server: ServerProcess | None = None
        if self.roles.has(self.rank, SERVER):
            number = self.roles.servers.index(self.rank)
            self.server = ServerProcess(recipe, number, self.rank, host)

    def _device_number(self) -> int:
        """Servers need no device, so those who train count without them."""
        first = self.rank - local_rank()
        return sum(self.roles.trains(rank) for rank in range(first, self.rank))

    def live(self, pulse: Pulse | None) -> str:
        """To the end of the run; why it ended."""
        heartbeat = Heartbeat(self.rendezvous, self.rank, _leave)
        if self.server is not None:
            self.server.open(self.rendezvous)
        place = self._find_place()
        keeper = self._keep_copies()
        if self.roles.has(self.rank, CHIEF):
            reason = self._be_chief(place, pulse)
        elif self.roles.trains(self.rank):
            reason = self._be_worker(place, pulse)
        else:
            reason = self._be_server(place, pulse)
        heartbeat.stop()
        if keeper is not None:
            keeper.finish(is_end=reason == "finished")
        return reason

    def _keep_copies(self) -> CheckpointKeeper | None:
        """The first process of a host whose run directory is its own."""
        if self.rank == 0 or not self.order.saves or local_rank() != 0:
            return None
        return CheckpointKeeper(self.rendezvous, self.run, self.recipe.checkpoint, self.rank)

    def _find_place(self) -> Place:
        """And the number of the attempt, which the chief alone was told for sure."""
        mine = [*own_place(self.world), self.order.attempt]
        told = self.rendezvous.gather(self.rank, self.roles.size, mine)
        self.world = replace(self.world, attempt=int(told[0][2]))
        return place_among([each[:2] for each in told], self.rank)

    # ---- roles

    def _attempt(self) -> Attempt:
        with naming_lack_of_memory(self.world, self.recipe.batch.micro):
            task = find_task(self.recipe.workload).open(self.recipe, self.world.device)
            attempt = Attempt(self.recipe, self.run, task, self.world)
        return attempt

    def _watch(self, pulse: Pulse | None, attempt: Attempt) -> None:
        if pulse is not None:
            clock, most_bytes = attempt.recorder.clock, attempt.most_bytes_of_step()
            pulse.watch(clock, lambda: attempt.state.progress.step, most_bytes=most_bytes)
            pulse.begin()

    def _be_chief(self, place: Place, pulse: Pulse | None) -> str:
        attempt = self._attempt()
        chief = Chief(attempt, self.roles, self.rendezvous, self.stop_asked)
        chief.open()
        if self.roles.trains(self.rank):
            attempt.rehearse(chief.lease_size)
        facts = attempt.look_around(self.order, place)
        self._watch(pulse, attempt)
        self._begin_server(place)
        chief.begin(self.launched_at, {**facts, **self._facts()})
        reason = "failed"
        try:
            with naming_lack_of_memory(self.world, self.recipe.batch.micro, attempt.recorder.clock):
                reason = chief.train()
        finally:
            chief.finish(reason)
            self._finish_server(reason)
        return reason

    def _be_worker(self, place: Place, pulse: Pulse | None) -> str:
        attempt = self._attempt()
        worker = Worker(attempt, self.roles, self.rendezvous)
        attempt.rehearse(worker.lease_size)
        facts = attempt.look_around(self.order, place)
        worker.join()
        self._watch(pulse, attempt)
        self._begin_server(place)
        worker.begin(self.launched_at, {**facts, **self._facts()})
        reason = "failed"
        try:
            with naming_lack_of_memory(self.world, self.recipe.batch.micro, attempt.recorder.clock):
                reason = worker.train(self.stop_asked)
        finally:
            worker.finish(reason)
            self._finish_server(reason)
        return reason

    def _facts(self) -> dict[str, Any]:
        return {"roles": self.roles.of(self.rank), "all_roles": list(self.roles.by_rank)}

    def _be_server(self, place: Place, pulse: Pulse | None) -> str:
        server = self.server
        assert server is not None  # noqa: S101  (there is no other role)
        if pulse is not None:
            pulse.watch(server.server.clock, lambda: max(server.server.version, 0))
        server.wait_for_weights()
        server.begin(self.run, self.world.attempt, self.launched_at, place.facts())
        seconds = self.recipe.log.probe_seconds
        probes = start_probes(
            self.run, self.world.attempt, place, seconds, lambda: server.server.version, server.note
        )
        reason = "failed"
        try:
            server.serve()
            reason = "finished"
        finally:
            if probes is not None:
                probes.stop()
            server.finish(reason)
        return reason

    # ---- a server beside another role

    def _begin_server(self, place: Place) -> None:
        if self.server is not None:
            self.server.wait_for_weights()
            self.server.begin(self.run, self.world.attempt, self.launched_at, place.facts())
            threading.Thread(target=self._tend_server, name="server", daemon=True).start()

    def _tend_server(self) -> None:
        assert self.server is not None  # noqa: S101
        self.server.serve()

    def _finish_server(self, reason: str) -> None:
        if self.server is not None:
            self.server.finish(reason)


def _leave() -> None:
    """The store is gone, and with it the host that held the round together."""
    time.sleep(2.0)  # whoever waits on a line says more
    os._exit(1)


def _serve_store(order: WorkerOrder) -> Any:
    if order.store_listener is None or not order.store:
        return None
    address, _, port = order.store.removeprefix("tcp://").rpartition(":")
    timeout = timedelta(seconds=_STORE_SECONDS)
    return serve_store(address, int(port), order.store_listener, timeout)


def _rendezvous(order: WorkerOrder) -> Rendezvous:
    if not order.store or not order.store.startswith("tcp://"):
        raise UserError(
            "this process was not told where the other roles are",
            "start all of them with `paceline train ... strategy=parameter-server`",
        )
    address, _, port = order.store.removeprefix("tcp://").rpartition(":")
    interface = interface_used(max(len(order.hosts), 1))
    token = order.token or _read_token(order, address, int(port))
    return Rendezvous(address, int(port), token, interface)


def _read_token(order: WorkerOrder, address: str, port: int) -> str:
    """The chief writes it anew before its store answers, so what is there afterwards is its own."""
    seconds = timedelta(seconds=_STORE_SECONDS)
    TCPStore(address, port, is_master=False, timeout=seconds)
    path = Path(order.token_file or "")
    until = time.monotonic() + _TOKEN_SECONDS
    while time.monotonic() < until:
        if path.is_file():
            return path.read_text(encoding="utf-8")
        time.sleep(0.2)
    raise UserError(
        f"this process cannot read {path}, where the chief says how its run is recognised",
        "put --run on storage that all hosts share",
    )
