"""A process's part as a worker: it joins the chief, trains what it is told, and leaves."""

import time
from collections.abc import Callable
from typing import Any

import torch

from paceline.errors import UserError
from paceline.record.schema import NETWORK
from paceline.strategies.admission import identity_of
from paceline.strategies.assignment import Assignment, Report
from paceline.strategies.channel import Channel, ChannelLostError, Message, type_named
from paceline.strategies.leases import Pace
from paceline.strategies.rendezvous import Rendezvous
from paceline.strategies.roles import Roles
from paceline.strategies.shards import read_shard
from paceline.strategies.trainer import LeasesAhead, Lines, Trainer
from paceline.train.attempt import Attempt
from paceline.train.input import Coming
from paceline.train.step import Measures, StepResult


class ChiefLine:
    """The chief, at the other end of a line."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.ended: str | None = None

    def next(self) -> Assignment | None:
        return self._assignment(self._ask({"ask": "next"}))

    def _ask(self, message: Message, tensor: torch.Tensor | None = None) -> Message:
        try:
            self._channel.send(message)
            if tensor is not None:
                self._channel.send_tensor(tensor)
            return self._channel.receive()
        except ChannelLostError as error:
            raise ChannelLostError(f"the chief is gone: {error}") from error

    def _assignment(self, told: Message) -> Assignment | None:
        self.ended = told.get("over")
        return None if self.ended else Assignment.of(told["assignment"])

    def begin(self, weights: int) -> bool:
        return bool(self._ask({"ask": "begin", "weights": weights})["may_begin"])

    def wants(self, weights: int) -> bool:
        return bool(self._ask({"ask": "wants", "weights": weights})["is_wanted"])

    def leave(self) -> None:
        self._ask({"ask": "leave"})

    def deliver(self, report: Report) -> tuple[int | None, float, Assignment | None]:
        """The step it became part of, that step's rate, and what to do next."""
        told = self._ask({"ask": "deliver", **report.as_message()}, report.statistics)
        return told["step"], told["rate"] or 0.0, self._assignment(told)


class Worker:
    def __init__(self, attempt: Attempt, roles: Roles, rendezvous: Rendezvous) -> None:
        self.attempt, self.roles, self.rendezvous = attempt, roles, rendezvous
        self.pace = Pace(attempt.recipe.strategy, len(roles.trainers))
        attempt.num_trainers, attempt.num_sharing = self.pace.num_trainers, self.pace.num_shares
        self._ahead = LeasesAhead()
        self._num_since_line = 0
        self._num_dropped = 0

    def join(self) -> None:
        """Returns with a seat, the shards and all that servers do not hold."""
        attempt, rank = self.attempt, self.attempt.world.rank
        host = attempt.world.host
        who = {
            "rank": rank,
            "name": f"{self.roles.name_of(rank)} (rank {rank} on {host})",
            "identity": identity_of(attempt.task, host).as_document(),
            "needs_scale": attempt.arithmetic.needs_scaler,
        }
        channel = self.rendezvous.connect("chief", who)
        told = channel.receive()
        if "refused" in told:
            raise UserError(str(told["refused"]), str(told["fix"]))
        self._take_buffers(channel, told["buffers"])
        attempt.state.progress.step = told["version"]
        self.chief = ChiefLine(channel)
        shards = tuple(read_shard(pieces) for pieces in told["shards"])
        lines = Lines.open(self.rendezvous, len(shards), told["seat"])
        wire = type_named(told["wire"])
        self.trainer = Trainer(attempt, self.chief, self.pace, shards, lines, wire, self._ahead)

    def _take_buffers(self, channel: Channel, names: list[str]) -> None:
        own = self.attempt.state.network.state_dict()
        for name in names:
            received = torch.empty_like(own[name], device="cpu").contiguous()
            channel.receive_into(received)
            own[name].copy_(received)

    @property
    def lease_size(self) -> int:
        """In micro-batches."""
        num_micro = self.attempt.task.micro_batches_per_step(self.pace.num_shares)
        return self.pace.lease_size(num_micro)

    def begin(self, launched_at: float, facts: dict[str, Any]) -> None:
        self.attempt.begin(launched_at, facts, Coming(iter(self._ahead), self.lease_size))

    def train(self, stop_asked: Callable[[], bool]) -> str:
        """Until the chief says that it is over, or this worker is asked to leave."""
        clock, progress = self.attempt.recorder.clock, self.attempt.state.progress
        with clock.phase(NETWORK):
            assignment = self.chief.next()
        while assignment is not None:
            report = self.trainer.compute(assignment, stop_asked())
            began = time.perf_counter()
            with clock.phase(NETWORK):
                step, rate, following = self.chief.deliver(report)
            self.trainer.waits.chief_seconds += time.perf_counter() - began
            progress.step = step or progress.step
            self._record(step, rate, report)
            assignment = following
            if stop_asked() and not self.pace.is_sync and assignment is not None:
                self._write_line()
                self.chief.leave()
                return "stopped"
        self._write_line()
        return self.chief.ended or "finished"

    def _record(self, step: int | None, rate: float, report: Report) -> None:
        self.attempt.input.after_step(self.attempt.state.progress.step, self.trainer.last_plan)
        if step is None:
            self._num_dropped += 1
            return
        loss = torch.tensor(report.loss_sum / report.num_units, dtype=torch.float64)
        self.attempt.recorder.add_step(step, rate, StepResult(loss, None, report.num_units))
        self._num_since_line += 1
        if self._num_since_line >= self.attempt.recipe.log.every_steps:
            self._write_line()

    def _write_line(self) -> None:
        recorder, last = self.attempt.recorder, self.trainer.last_plan
        if not self._num_since_line:
            return
        more = {**self.trainer.take_waits().facts(), "num_dropped": self._num_dropped}
        self._num_since_line = self._num_dropped = 0
        epochs = self.attempt.task.epochs_at(last.indices.stop)
        recorder.close_interval(epochs, Measures(more=more))
        interval = recorder.read_interval(wait=True)
        if interval is not None:
            recorder.write_steps(self.attempt.recipe.steps, interval)

    def finish(self, reason: str) -> None:
        self.attempt.finish(reason)
