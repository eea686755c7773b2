"""The chief's eye on its trainers: who is silent is taken for lost, and without any it gives up."""

import threading
import time
from collections.abc import Callable

from paceline.strategies.chief.coordinator import Coordinator, Seat
from paceline.strategies.rendezvous import Heartbeats, Rendezvous
from paceline.units import format_seconds

_LOOK_SECONDS = 1.0


class TrainerWatch:
    """A line that is closed tells at once; a host without power, or a stopped process, closes
    nothing, and is known by its silence."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        coordinator: Coordinator,
        lost: Callable[[Seat, str], None],
        hang_seconds: float,
        return_seconds: float,
    ) -> None:
        self._heartbeats, self._coordinator, self._lost = Heartbeats(rendezvous), coordinator, lost
        self._hang_seconds, self._return_seconds = hang_seconds, return_seconds
        self._alone_since: float | None = None
        threading.Thread(target=self._work, name="watch", daemon=True).start()

    def _work(self) -> None:
        while self._coordinator.ended is None:
            time.sleep(_LOOK_SECONDS)
            try:
                self._look()
            except RuntimeError:  # the store is gone, and the round with it
                return

    def _look(self) -> None:
        seats = {f"rank-{seat.rank}": seat for seat in list(self._coordinator.seats.values())}
        for name, seconds in self._heartbeats.silent_seconds(seats).items():
            if seconds > self._hang_seconds:
                self._lost(seats[name], f"no sign of life for {format_seconds(seconds)}")
        if seats or not self._coordinator.has_begun:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        alone = time.monotonic() - self._alone_since
        if alone > self._return_seconds:
            text = f"no worker is left, and none came back within {format_seconds(alone)}"
            self._coordinator.fail(RuntimeError(text))
