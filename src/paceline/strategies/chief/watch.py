"""The chief's eye on the others: who is silent is lost, and with too few trainers it gives up.

A line that is closed tells at once; a host without power, or a stopped process, closes nothing, and
is known by its silence.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from paceline.settings import GuardSettings
from paceline.strategies.channel import ChannelLostError
from paceline.strategies.chief.coordinator import Coordinator, Seat
from paceline.strategies.rendezvous import Heartbeats, Rendezvous
from paceline.train.worker import leave_at_once
from paceline.units import count_of, format_seconds

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 5.0


class SilenceWatch:
    def __init__(
        self,
        rendezvous: Rendezvous,
        coordinator: Coordinator,
        servers: Mapping[int, str],
        lost: Callable[[Seat, str], None],
        guard: GuardSettings,
    ) -> None:
        """`servers`: in other processes, by rank their names. `lost` hears of trainers."""
        self._heartbeats, self._coordinator = Heartbeats(rendezvous), coordinator
        self._servers, self._lost, self._guard = servers, lost, guard
        self._too_few_since: float | None = None
        self._were_enough = False
        threading.Thread(target=self._work, name="watch", daemon=True).start()

    def _work(self) -> None:
        while self._coordinator.ended is None:
            time.sleep(_LOOK_SECONDS)
            try:
                self._look()
            except RuntimeError:  # the store is gone, and the round with it
                return

    def _look(self) -> None:
        seats = {seat.rank: seat for seat in list(self._coordinator.seats.values())}
        for rank, seconds in self._heartbeats.silent_seconds([*seats, *self._servers]).items():
            if seconds <= self._guard.hang_seconds:
                continue
            why = f"no sign of life for {format_seconds(seconds)}"
            if rank in self._servers:
                self._end_round(f"{self._servers[rank]} is gone ({why})")
            self._lost(seats[rank], why)
        self._look_whether_too_few(len(seats))

    def _look_whether_too_few(self, num_trainers: int) -> None:
        """With backup workers a step needs all but those. At the start they come one by one."""
        least = self._coordinator.pace.num_shares
        self._were_enough |= num_trainers >= least
        if num_trainers >= least or not self._were_enough:
            self._too_few_since = None
            return
        self._too_few_since = self._too_few_since or time.monotonic()
        seconds = time.monotonic() - self._too_few_since
        if seconds > self._guard.return_seconds:
            left = f"{num_trainers} of the {count_of(least, 'trainer')} that a step needs"
            text = f"{left} are left, and none came back within {format_seconds(seconds)}"
            self._coordinator.fail(RuntimeError(text))

    def _end_round(self, text: str) -> NoReturn:
        """The main thread may wait for that server for ever, and not hear of it."""
        error = ChannelLostError(text)
        self._coordinator.fail(error)
        time.sleep(_GRACE_SECONDS)
        try:
            raise error
        except ChannelLostError as raised:
            get_error_handler().record_exception(raised)
        leave_at_once(1)
