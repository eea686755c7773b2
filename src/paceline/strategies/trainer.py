"""A trainer at work: weights from all servers, then a gradient of its lease back to them.

The chief says what to compute. Weights are fetched by a thread, in modes that allow it while the
gradient before is still being computed; samples are read ahead as in every run.
"""

import queue
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import torch

from paceline.record.schema import COMPUTE, INPUT, NETWORK
from paceline.strategies.assignment import Assignment, Report
from paceline.strategies.channel import Channel, send_all
from paceline.strategies.flat_rows import FlatRows
from paceline.strategies.leases import Lease, Pace
from paceline.strategies.rendezvous import Rendezvous
from paceline.strategies.shards import Shard
from paceline.train.attempt import Attempt
from paceline.train.step import StepPlan, gradient_norm

_MOST_KNOWN = 16
"""Leases that are remembered as read; a trainer has two at a time."""


class Chief(Protocol):
    """As a trainer sees it, in the same process or at the other end of a line."""

    def begin(self, weights: int) -> bool: ...

    def wants(self, weights: int) -> bool: ...


@dataclass(frozen=True)
class Weights:
    version: int
    rows: list[torch.Tensor]
    seconds: float
    update_seconds: float
    """Of these, waiting until servers had made an update."""


@dataclass
class Waits:
    """What a trainer waited for since its last line, by what for; all within the network."""

    push_seconds: float = 0.0
    pull_seconds: float = 0.0
    update_seconds: float = 0.0
    chief_seconds: float = 0.0

    def add(self, other: "Waits") -> None:
        for name, seconds in vars(other).items():
            setattr(self, name, getattr(self, name) + seconds)

    def facts(self) -> dict[str, float]:
        return {name: round(seconds, 6) for name, seconds in vars(self).items()}


class LeasesAhead:
    """The indices of leases in the order in which they will be computed, for reading ahead."""

    def __init__(self) -> None:
        self._indices: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._known: deque[int] = deque(maxlen=_MOST_KNOWN)

    def add(self, lease: Lease | None) -> None:
        if lease is not None and lease.number not in self._known:
            self._known.append(lease.number)
            for index in lease.indices:
                self._indices.put(index)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        try:
            return self._indices.get_nowait()
        except queue.Empty:
            raise StopIteration from None


@dataclass(frozen=True)
class Lines:
    """To all servers."""

    push: list[Channel]
    pull: list[Channel]

    @classmethod
    def open(cls, rendezvous: Rendezvous, num_servers: int, seat: int) -> "Lines":
        def connect(line: str) -> list[Channel]:
            who = {"line": line, "seat": seat}
            return [rendezvous.connect(f"server-{number}", who) for number in range(num_servers)]

        return cls(connect("push"), connect("pull"))


@dataclass
class Trainer:
    attempt: Attempt
    chief: Chief
    pace: Pace
    shards: tuple[Shard, ...]
    lines: Lines
    wire: torch.dtype
    ahead: LeasesAhead
    waits: Waits = field(default_factory=Waits)
    last_plan: StepPlan = field(default_factory=lambda: StepPlan(range(0), range(0), 0))

    def __post_init__(self) -> None:
        self.clock, self.stepper = self.attempt.recorder.clock, self.attempt.stepper
        self._flat_rows = FlatRows(self.attempt.state.network, self.shards, self.wire)
        self._spare = [self._flat_rows.new_rows() for _ in range(1 + self.pace.overlaps)]
        self._puller = ThreadPoolExecutor(1, thread_name_prefix="pull")
        self._coming: Future[Weights] | None = None
        self._clip = None if self.pace.is_sync else self.attempt.recipe.optimizer.clip_norm

    def compute(self, assignment: Assignment, wants_to_stop: bool = False) -> Report:
        """A gradient of the lease, at all servers."""
        if assignment.held:
            self._count_held(assignment)
            self.forget_weights()
        self.ahead.add(assignment.lease)
        self.ahead.add(assignment.ahead)
        if self._coming is None:
            self._coming = self._puller.submit(self._pull, assignment.least_version)
        lease, units = assignment.lease, self.attempt.task.num_units
        plan = self.last_plan = StepPlan(lease.indices, lease.indices, assignment.num_units)
        with self.clock.phase(INPUT):
            batches = self.attempt.input.take(plan)
        with self.clock.phase(NETWORK):
            version = self._take_weights(assignment)
        with self.clock.phase(COMPUTE):
            self.stepper.loss_scale = assignment.loss_scale
            loss_sum = float(self.stepper.forward_backward(plan, batches))
        with self.clock.phase(NETWORK):
            is_sent, is_finite = self._send(assignment, version)
        return Report(
            lease=lease.number,
            version=version,
            loss_sum=loss_sum,
            num_units=sum(map(units, lease.indices)),
            statistics=self.stepper.statistics.take().cpu(),
            is_finite=is_finite,
            is_sent=is_sent,
            wants_to_stop=wants_to_stop,
        )

    def _count_held(self, assignment: Assignment) -> None:
        """What the chief kept us waiting for with an evaluation is no network."""
        for phase, seconds in assignment.held.items():
            self.clock.move(seconds, NETWORK, phase)

    # ---- weights

    def _take_weights(self, assignment: Assignment) -> int:
        while True:
            weights = self._await_weights(assignment.least_version)
            if self.pace.most_staleness is None or self.pace.is_sync:
                break
            began = time.perf_counter()
            may_begin = self.chief.begin(weights.version)
            self.waits.chief_seconds += time.perf_counter() - began
            if may_begin:
                break
            self._spare.append(weights.rows)
            self._coming = self._puller.submit(self._pull, weights.version + 1)
        self._flat_rows.put_weights(weights.rows)
        self._spare.append(weights.rows)
        if self.pace.overlaps:
            self._coming = self._puller.submit(self._pull, weights.version)
        return weights.version

    def _await_weights(self, least_version: int) -> Weights:
        assert self._coming is not None  # noqa: S101
        began = time.perf_counter()
        weights = self._coming.result()
        waited = time.perf_counter() - began
        self._coming = None
        updating = min(weights.update_seconds, waited)
        self.waits.update_seconds += updating
        self.waits.pull_seconds += waited - updating
        if weights.version < least_version and not self.pace.overlaps:
            raise AssertionError(f"weights {weights.version}, but at least {least_version}")
        return weights

    def _pull(self, least_version: int) -> Weights:
        """In the puller's thread."""
        began = time.perf_counter()
        rows = self._spare.pop()
        for line in self.lines.pull:
            line.send({"least": least_version})
        told = [line.receive() for line in self.lines.pull]
        begun = [line.begin_receive(row) for line, row in zip(self.lines.pull, rows, strict=True)]
        for line, work in zip(self.lines.pull, begun, strict=True):
            line.wait_for(work)
        return Weights(
            version=min(int(each["version"]) for each in told),
            rows=rows,
            seconds=time.perf_counter() - began,
            update_seconds=max(float(each["waited_seconds"]) for each in told),
        )

    # ---- gradients

    def _send(self, assignment: Assignment, version: int) -> tuple[bool, bool]:
        """Whether it was sent, and whether it is a gradient at all."""
        network = self.attempt.state.network
        if assignment.loss_scale != 1.0:
            gradients = [p.grad for p in network.parameters() if p.grad is not None]
            torch._foreach_mul_(gradients, 1.0 / assignment.loss_scale)
        if self._clip is not None:
            gradient_norm(network, self._clip)
        rows = self._flat_rows.pack_gradients()
        self.attempt.state.optimizer.zero_grad(set_to_none=True)
        scales = assignment.loss_scale != 1.0
        is_finite = not scales or all(bool(torch.isfinite(row).all()) for row in rows)
        if self.pace.is_sync and not self.pace.has_fixed_shares and not self.chief.wants(version):
            return False, is_finite
        began = time.perf_counter()
        for line in self.lines.push:
            line.send({"lease": assignment.lease.number})
        send_all(self.lines.push, rows)
        for line in self.lines.push:
            line.receive()
        self.waits.push_seconds += time.perf_counter() - began
        return True, is_finite

    def forget_weights(self) -> None:
        """Those that were fetched ahead are old by now."""
        if self._coming is not None:
            self._spare.append(self._coming.result().rows)
            self._coming = None

    def take_waits(self) -> Waits:
        taken, self.waits = self.waits, Waits()
        return taken
