"""The chief's decisions: who trains which lease, when an update is made, when all is over.

A thread stands for every trainer and may wait here; decisions are made under one lock. What takes
long (evaluating, saving) is a chore of the chief's main thread; trainers that must wait for it are
told for how long and for what.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.record.schema import CHECKPOINT, EVALUATE
from paceline.strategies.assignment import Assignment, Report
from paceline.strategies.chief.state import Moment
from paceline.strategies.chief.updates import Gradient, Updates
from paceline.strategies.leases import Arrival, Lease, share_of

_LOOK_SECONDS = 0.2


@dataclass
class Seat:
    """A trainer, from its coming to its end; one that comes back gets another."""

    number: int
    place: int
    """Among all trainers, in the order of their ranks."""
    rank: int
    name: str
    lease: Lease | None = None
    ahead: Lease | None = None
    weights: int | None = None
    """The version that it computes with."""
    is_expected: bool = False
    """With backup workers: its gradient is on its way and will be part of the step."""
    gradient: Gradient | None = None
    """Arrived, and not decided on."""
    last_step: int | None = None
    """That its gradient made or became part of; None of one that came too late."""
    is_gone: bool = False

    @property
    def held(self) -> list[Lease]:
        return [lease for lease in (self.lease, self.ahead) if lease is not None]


@dataclass(frozen=True)
class Chore:
    """What the chief's main thread does about a step; the servers hold a copy of its weights."""

    moment: Moment
    evaluates: bool
    saves: bool
    ends: str | None = None
    """Why all is over after it."""

    @property
    def phase(self) -> str:
        return EVALUATE if self.evaluates else CHECKPOINT


class Coordinator:
    def __init__(
        self, updates: Updates, steps: int, num_micro: int, stop_asked: Callable[[], bool]
    ) -> None:
        """`num_micro`: micro-batches of one step."""
        self._updates, self.pace = updates, updates.pace
        self._steps, self._num_micro, self._stop_asked = steps, num_micro, stop_asked
        self._changed = threading.Condition(threading.RLock())
        self.seats: dict[int, Seat] = {}
        self._num_seats = 0
        self._began_at = updates.version
        self._chores: list[Chore] = []
        self._stop_wanted = False
        self.ended: str | None = None
        """Why nobody gets a lease any more."""
        self._problem: BaseException | None = None

    # ---- trainers come and go

    def join(self, place: int, rank: int, name: str) -> Seat:
        with self._changed:
            for before in [seat for seat in self.seats.values() if seat.place == place]:
                self.leave(before)  # it is back before anybody noticed that it was gone
            self._num_seats += 1
            seat = self.seats[self._num_seats] = Seat(self._num_seats, place, rank, name)
            self._changed.notify_all()
            return seat

    def leave(self, seat: Seat) -> None:
        """What it held is handed out again. A gradient that is whole at all servers stays."""
        with self._changed:
            if seat.is_gone:
                return
            if seat.gradient is not None:
                self._advance()
            seat.is_gone = True
            self.seats.pop(seat.number, None)
            for lease in seat.held:
                self._updates.give_back(lease)
            self._updates.lines.drop(seat.number, is_gone=True)
            self._advance()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """The round cannot go on; whoever waits here raises this."""
        with self._changed:
            self._problem = self._problem or error
            self._changed.notify_all()

    # ---- what a trainer asks

    def next(self, seat: Seat, unless_chore: bool = False) -> Assignment | None:
        """What to compute; None when all is over, or for a trainer that is not ours any more; for
        the chief itself also when there is a chore for it to do."""
        held: dict[str, float] = {}
        with self._changed:
            while not self._is_over(seat) and not (unless_chore and self._chores):
                if self._hold() is None and self._all_are_here() and self._hand_out(seat):
                    return self._assignment(seat, held)
                self._wait(held)
            return None

    def _is_over(self, seat: Seat) -> bool:
        if self._problem is not None:
            raise self._problem
        return seat.is_gone or self.ended is not None

    def _all_are_here(self) -> bool:
        """In step nobody begins without the others."""
        has_begun = self._updates.version > self._began_at
        return not self.pace.is_sync or has_begun or len(self.seats) == self.pace.num_trainers

    def _hand_out(self, seat: Seat) -> bool:
        if self.pace.has_fixed_shares:
            is_last = self._updates.version + 1 >= self._steps
            seat.lease = self._share(seat.place, 0)
            seat.ahead = None if is_last else self._share(seat.place, 1)
            return True
        if seat.ahead is not None:
            seat.lease, seat.ahead = seat.ahead, None
        elif self._num_left() > 0:
            seat.lease = self._take()
        else:
            return False
        if self._num_left() > self.pace.num_trainers:  # else the last would wait for the slowest
            seat.ahead = self._take()
        return True

    def _share(self, place: int, steps_ahead: int) -> Lease:
        first = self._updates.positions.next + steps_ahead * self._num_micro
        indices = share_of(first, self._num_micro, place, self.pace.num_shares)
        return Lease(self._updates.version + steps_ahead, indices)

    def _take(self) -> Lease:
        return self._updates.positions.take(self.pace.lease_size(self._num_micro))

    def _num_left(self) -> int:
        """Leases that are still to be handed out until the last step."""
        needed = (self._steps - self._updates.version) * self.pace.num_shares
        return needed - sum(len(seat.held) for seat in self.seats.values())

    def _assignment(self, seat: Seat, held: dict[str, float]) -> Assignment:
        assert seat.lease is not None  # noqa: S101  (it was handed out just now)
        version = self._updates.version
        return Assignment(
            lease=seat.lease,
            ahead=seat.ahead,
            least_version=version if self.pace.is_sync else seat.last_step or 0,
            num_units=self._updates.units_of(seat.lease),
            loss_scale=self._updates.scale.scale,
            held={name: round(seconds, 6) for name, seconds in held.items()},
        )

    def rate_of(self, step: int) -> float:
        return self._updates.duties.rate(step)

    def begin(self, seat: Seat, weights: int) -> bool:
        """The trainer computes with weights of this version; False if they are too old by now."""
        with self._changed:
            while not self._is_over(seat):
                others = [s.weights for s in self.seats.values() if s.weights is not None]
                if self.pace.may_begin(others, weights, self._updates.version):
                    seat.weights = weights
                    break
                if weights < self._updates.version:
                    return False
                self._wait({})
            return True

    def wants(self, seat: Seat, weights: int) -> bool:
        """Whether a gradient that is ready to be sent would become part of the step."""
        with self._changed:
            num_expected = sum(each.is_expected for each in self.seats.values())
            seat.is_expected = self.ended is None and self.pace.is_wanted(
                weights, num_expected, self._updates.version
            )
            return seat.is_expected

    def deliver(self, seat: Seat, report: Report) -> int | None:
        """The step that the gradient made or became part of; None if it came too late."""
        with self._changed:
            if self._is_over(seat) or seat.lease is None:
                return None
            arrival = Arrival(seat.number, seat.place, seat.lease, report.version)
            seat.gradient = Gradient(arrival, seat.rank, report)
            if not report.is_sent:
                self._drop(seat)
            self._stop_wanted |= report.wants_to_stop and self.pace.is_sync
            self._advance()
            while seat.gradient is not None and not self._is_over(seat):
                self._wait({})
            return seat.last_step if seat.gradient is None else None

    # ---- updates

    def _advance(self) -> None:
        """Make all updates that can be made now."""
        while self.ended is None and self._problem is None:
            waiting = [s for s in self.seats.values() if s.gradient is not None]
            computing = [
                s.weights
                for s in self.seats.values()
                if s.weights is not None and s.gradient is None
            ]
            arrivals = [s.gradient.arrival for s in waiting if s.gradient is not None]
            chosen = self.pace.choose(arrivals, computing, self._updates.version)
            if not chosen:
                return
            self._update([self.seats[arrival.seat] for arrival in chosen])

    def _update(self, chosen: list[Seat]) -> None:
        try:
            self._updates.make([seat.gradient for seat in chosen if seat.gradient is not None])
            for seat in chosen:
                seat.last_step = self._updates.version
                _free(seat)
            self._drop_late()
            self._look_at_duties()
        except BaseException as error:
            self.fail(error)
        self._changed.notify_all()

    def _drop_late(self) -> None:
        waiting = [s.gradient.arrival for s in self.seats.values() if s.gradient is not None]
        for arrival in self.pace.too_late(waiting, self._updates.version):
            self._drop(self.seats[arrival.seat])
        for seat in self.seats.values():
            seat.is_expected = False

    def _drop(self, seat: Seat) -> None:
        if seat.gradient is not None:
            self._updates.drop(seat.gradient)
        seat.last_step = None
        _free(seat)

    # ---- chores of the main thread, and the end

    def _look_at_duties(self) -> None:
        duties, step = self._updates.duties, self._updates.version
        ends = "finished" if step >= self._steps else None
        if ends is None and (self._stop_wanted or self._stop_asked()):
            ends = "stopped"
        evaluates = duties.evaluation_is_due(step)
        saves = ends is not None or duties.save_is_late() or duties.save_is_due(step)
        self._updates.write(must=evaluates or saves)
        if evaluates or saves:
            self._order_chore(evaluates, saves, ends)

    def _order_chore(self, evaluates: bool, saves: bool, ends: str | None) -> None:
        self.ended = ends
        held = [lease for seat in self.seats.values() for lease in seat.held]
        self._chores.append(Chore(self._updates.moment(held), evaluates, saves, ends))
        self._updates.lines.order_copy(is_whole=saves)
        if saves:
            self._updates.duties.begin_save()

    def _hold(self) -> str | None:
        """For what nobody gets a lease: in step for every chore, else only while the chief has one
        to do and the next is due."""
        if not self._chores:
            return None
        has_to_wait = self.pace.is_sync or self.ended is not None or len(self._chores) > 1
        return self._chores[0].phase if has_to_wait else None

    def take_chore(self, wait: bool) -> Chore | None:
        """For the chief's main thread; without `wait` only what is there already."""
        with self._changed:
            while wait and not self._chores and self._problem is None:
                self._wait({})
            if self._problem is not None:
                raise self._problem
            return self._chores[0] if self._chores else None

    def finish_chore(self) -> None:
        with self._changed:
            self._chores.pop(0)
            self._advance()
            self._changed.notify_all()

    def _wait(self, held: dict[str, float]) -> None:
        reason, began = self._hold(), time.perf_counter()
        self._changed.wait(_LOOK_SECONDS)
        if reason is not None:
            held[reason] = held.get(reason, 0.0) + time.perf_counter() - began
        self._look_whether_to_stop()

    def _look_whether_to_stop(self) -> None:
        """In step all stop after the next update, if there is going to be one."""
        if self.ended is not None or self._problem is not None or not self._stop_asked():
            return
        if self.pace.is_sync and self._all_are_here():
            return
        has_trained = self._updates.version > self._began_at
        if has_trained:
            self._updates.write(must=True)
        self._order_chore(evaluates=False, saves=has_trained, ends="stopped")
        self._changed.notify_all()


def _free(seat: Seat) -> None:
    seat.lease = seat.gradient = seat.weights = None
    seat.is_expected = False
