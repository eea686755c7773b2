"""A process's part as the chief: restore, give out shards, let trainers in, evaluate, save, end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.record.schema import CHECKPOINT, EVALUATE, IDLE, NETWORK
from paceline.strategies.admission import Identity, identity_of, refuse_stranger
from paceline.strategies.assignment import Report
from paceline.strategies.channel import Channel, ChannelLostError, Message, name_of_type, type_named
from paceline.strategies.checkpoint_copies import CheckpointCopies
from paceline.strategies.chief.coordinator import Chore, Coordinator, Seat
from paceline.strategies.chief.loss_scale import LossScale
from paceline.strategies.chief.server_lines import Gathered, ServerLines
from paceline.strategies.chief.state import Buffers, fresh, read_checkpoint
from paceline.strategies.chief.updates import Updates
from paceline.strategies.chief.watch import SilenceWatch
from paceline.strategies.flat_rows import Tensors, trained_weights
from paceline.strategies.leases import Pace, Positions
from paceline.strategies.rendezvous import Rendezvous
from paceline.strategies.roles import WIRE_TYPES, Roles
from paceline.strategies.shards import cut
from paceline.strategies.trainer import LeasesAhead, Lines, Trainer
from paceline.train.attempt import Attempt
from paceline.train.duties import Duties
from paceline.train.input import Coming
from paceline.train.save import CheckpointSaver
from paceline.train.state import Progress

_BYE_SECONDS = 10.0


@dataclass
class Start:
    """With what the chief begins."""

    gathered: Gathered
    numbers: dict[str, Any]
    average: Tensors | None


class Chief:
    def __init__(
        self,
        attempt: Attempt,
        roles: Roles,
        rendezvous: Rendezvous,
        stop_asked: Callable[[], bool],
    ) -> None:
        self.attempt, self.roles, self.rendezvous = attempt, roles, rendezvous
        recipe, network = attempt.recipe, attempt.state.network
        self.pace = Pace(recipe.strategy, len(roles.trainers))
        attempt.num_trainers, attempt.num_sharing = self.pace.num_trainers, self.pace.num_shares
        self._is_open = threading.Event()
        self._guests: set[int] = set()
        self._weights = trained_weights(network, recipe.optimizer)
        self._shards = cut(self._weights, len(roles.servers))
        self._identity = identity_of(attempt.task, attempt.world.host)
        self._stop_asked = stop_asked
        self.wire: torch.dtype = type_named(WIRE_TYPES[recipe.reduce.kind])
        self._seat: Seat | None = None
        self._trainer: Trainer | None = None

    # ---- start-up

    def open(self) -> None:
        """Weights to the servers, and the door for trainers."""
        start = self._restore()
        progress = self.attempt.state.progress
        self.lines = ServerLines(self.rendezvous, self._shards)
        self.lines.load(start.gathered, progress.step, self.pace.num_trainers, self.wire)
        duties = Duties(self.attempt, self.pace.num_shares, by_threads=True)
        positions = Positions.of_numbers(progress.position, start.numbers.get("positions", {}))
        buffers = Buffers(self.attempt.state.network, self.attempt.recipe.optimizer)
        buffers.load(self.attempt.state.network.state_dict(), start.average)
        self.updates = Updates(self.pace, positions, duties, buffers, self.lines)
        needs_scale = self.attempt.arithmetic.needs_scaler
        self.updates.scale = LossScale.of(needs_scale, start.numbers.get("scaler", {}))
        self.attempt.recorder.steps_go_on = not self.pace.is_sync
        self.buffers = buffers
        self.coordinator = Coordinator(
            self.updates, self.attempt.recipe.steps, self._num_micro, self._stop_asked
        )
        self._checkpoint_copies = CheckpointCopies(self.rendezvous)
        self.rendezvous.accept("chief", self._let_in)

    def _restore(self) -> Start:
        attempt, network = self.attempt, self.attempt.state.network
        checkpoint, problems = stored.newest_whole(attempt.run.checkpoints)
        for problem in problems:
            attempt.warn(f"damaged checkpoint: {problem}")
        if checkpoint is None:
            attempt.refuse_other_data()
            attempt.begin_anew()
            return Start(fresh(network), {}, None)
        restored = read_checkpoint(checkpoint, [weight.name for weight in self._weights])
        network.load_state_dict(restored.weights)
        attempt.state.progress = Progress(**restored.numbers["progress"])
        attempt.refuse_other_data()
        return Start(restored.gathered, restored.numbers, restored.average)

    def begin(self, launched_at: float, facts: dict[str, Any]) -> None:
        ahead = LeasesAhead()
        num_each = self.lease_size if self._trains else 0
        if self._trains:
            self._seat = self.coordinator.join(0, 0, "chief")
            lines = Lines.open(self.rendezvous, len(self._shards), self._seat.number)
            here = ChiefHere(self.coordinator, self._seat)
            self._trainer = Trainer(
                self.attempt, here, self.pace, self._shards, lines, self.wire, ahead
            )
        self.attempt.begin(launched_at, facts, Coming(iter(ahead), num_each))
        clips = self.attempt.recipe.optimizer.clip_norm is not None
        for text in self.pace.notes(clips, self._num_micro):
            self.attempt.recorder.note("note", step=self.updates.version, text=text)
        self._is_open.set()
        name_of = self.roles.name_of
        servers = {rank: f"{name_of(rank)} (rank {rank})" for rank in self.roles.servers if rank}
        guard = self.attempt.recipe.guard
        SilenceWatch(self.rendezvous, self.coordinator, servers, self._lost, guard)

    @property
    def _trains(self) -> bool:
        return self.roles.trains(0)

    @property
    def _num_micro(self) -> int:
        """Micro-batches of a step."""
        return self.attempt.task.micro_batches_per_step(self.pace.num_shares)

    @property
    def lease_size(self) -> int:
        """In micro-batches."""
        return self.pace.lease_size(self._num_micro)

    # ---- the main thread

    def train(self) -> str:
        """Chores as they come, and its own leases between them; why it ended."""
        while True:
            chore = self._next_chore()
            if chore is not None:
                self._do(chore)
                if self._trainer is not None:
                    self._trainer.forget_weights()
                self.coordinator.finish_chore()
                if chore.ends:
                    return chore.ends
            elif self._seat is not None:
                self._compute(self._seat)

    def _next_chore(self) -> Chore | None:
        if self._trains and self.coordinator.ended is None:
            return self.coordinator.take_chore(wait=False)
        with self.attempt.recorder.clock.phase(IDLE):
            return self.coordinator.take_chore(wait=True)

    def _compute(self, seat: Seat) -> None:
        assert self._trainer is not None  # noqa: S101
        began = time.perf_counter()
        with self.attempt.recorder.clock.phase(NETWORK):
            assignment = self.coordinator.next(seat, unless_chore=True)
        self._trainer.waits.chief_seconds += time.perf_counter() - began
        if assignment is None:
            return
        report = self._trainer.compute(assignment)
        began = time.perf_counter()
        with self.attempt.recorder.clock.phase(NETWORK):
            step = self.coordinator.deliver(seat, report)
        self._trainer.waits.chief_seconds += time.perf_counter() - began
        self.updates.waits.add(self._trainer.take_waits())
        plan = self._trainer.last_plan
        self.attempt.input.after_step(step or self.updates.version, plan)

    def _do(self, chore: Chore) -> None:
        clock, moment = self.attempt.recorder.clock, chore.moment
        duties, began = self.updates.duties, time.perf_counter()
        with clock.phase(EVALUATE if chore.evaluates else CHECKPOINT):
            shapes = {n: p.shape for n, p in self.attempt.state.network.named_parameters()}
            trained = {weight.name: shapes[weight.name] for weight in self._weights}
            gathered = self.lines.receive_copy(trained)
        copy_seconds = time.perf_counter() - began
        if chore.evaluates:
            network = self.attempt.state.network
            network.load_state_dict(moment.scored(gathered))
            duties.evaluate(moment.progress.step, network, moment.progress)
            progress = self.attempt.state.progress
            best = moment.progress.best_score, moment.progress.best_step
            progress.best_score, progress.best_step = best
        saver = self.attempt.saver
        if chore.saves and isinstance(saver, CheckpointSaver):
            with clock.phase(CHECKPOINT):
                snapshot = moment.snapshot(gathered)
                saver.save_snapshot(snapshot, copy_seconds)
                self._checkpoint_copies.send(snapshot)
            self.attempt.recorder.saved_aside()

    # ---- the door

    def _let_in(self, channel: Channel, who: Message) -> None:
        """In a thread of the trainer's own, to its end."""
        self._is_open.wait()
        try:
            refuse_stranger(self._identity, Identity(**who["identity"]))
        except UserError as error:
            channel.send({"refused": error.what, "fix": error.fix})
            if self.attempt.recipe.strategy.survives_lost_workers:
                self.attempt.warn(f"refused: {error.what}")
            else:
                self.coordinator.fail(error)
            return
        rank = int(who["rank"])
        seat = self.coordinator.join(self.roles.trainers.index(rank), rank, str(who["name"]))
        if who["needs_scale"] and not self.updates.scale.is_enabled:
            self.updates.scale = LossScale.of(True, {})
        self._guests.add(seat.number)
        try:
            self._welcome(channel, seat)
            TrainerHere(self.coordinator, seat, self.buffers.num_statistics).serve(channel)
        except ChannelLostError as error:
            self._lost(seat, str(error))
        except BaseException as error:
            self.coordinator.fail(error)
        finally:
            self._guests.discard(seat.number)

    def _welcome(self, channel: Channel, seat: Seat) -> None:
        frozen = self.buffers.tensors()
        channel.send(
            {
                "seat": seat.number,
                "version": self.updates.version,
                "shards": [[piece.as_list() for piece in shard] for shard in self._shards],
                "wire": name_of_type(self.wire),
                "buffers": list(frozen),
            }
        )
        for tensor in frozen.values():
            channel.send_tensor(tensor.contiguous())

    def _lost(self, seat: Seat, why: str) -> None:
        if self.coordinator.ended is not None or seat.is_gone:
            return
        if not self.attempt.recipe.strategy.survives_lost_workers:
            self.coordinator.fail(ChannelLostError(f"{seat.name} is gone ({why})"))
            return
        self.coordinator.leave(seat)
        self.attempt.recorder.note(
            "warning",
            step=self.updates.version,
            text=f"{seat.name} is gone ({why}); the others go on, and its samples are handed out "
            "again",
            lost_rank=seat.rank,
        )

    def finish(self, reason: str) -> None:
        """Trainers hear of the end when they ask for the next lease; servers last of all."""
        if reason != "failed":
            until = time.monotonic() + _BYE_SECONDS
            while self._guests and time.monotonic() < until:
                time.sleep(0.02)
            self._checkpoint_copies.finish()
            self.lines.bye()
        self.attempt.finish(reason)


@dataclass(frozen=True)
class ChiefHere:
    """The chief, to the trainer in its own process."""

    coordinator: Coordinator
    seat: Seat

    def begin(self, weights: int) -> bool:
        return self.coordinator.begin(self.seat, weights)

    def wants(self, weights: int) -> bool:
        return self.coordinator.wants(self.seat, weights)


@dataclass(frozen=True)
class TrainerHere:
    """A trainer elsewhere, to the chief: its questions, one by one."""

    coordinator: Coordinator
    seat: Seat
    num_statistics: int

    def serve(self, channel: Channel) -> None:
        answers = {
            "next": self._next,
            "begin": self._begin,
            "wants": self._wants,
            "deliver": self._deliver,
            "leave": self._leave,
        }
        while True:
            told = channel.receive()
            answer = answers[told["ask"]](channel, told)
            channel.send(answer)
            if answer.get("over"):
                return

    def _next(self, _channel: Channel, _told: Message) -> Message:
        assignment = self.coordinator.next(self.seat)
        if assignment is None:
            return {"over": self.coordinator.ended or "left"}
        return {"assignment": assignment.as_message()}

    def _begin(self, _channel: Channel, told: Message) -> Message:
        return {"may_begin": self.coordinator.begin(self.seat, int(told["weights"]))}

    def _wants(self, _channel: Channel, told: Message) -> Message:
        return {"is_wanted": self.coordinator.wants(self.seat, int(told["weights"]))}

    def _leave(self, _channel: Channel, _told: Message) -> Message:
        self.coordinator.leave(self.seat)
        return {"over": "left"}

    def _deliver(self, channel: Channel, told: Message) -> Message:
        statistics = torch.empty(self.num_statistics)
        channel.receive_into(statistics)
        step = self.coordinator.deliver(self.seat, Report.of(told, statistics))
        rate = self.coordinator.rate_of(step) if step is not None else None
        return {"step": step, "rate": rate, **self._next(channel, told)}
