"""How the processes of a run with parameter servers find each other, and who is still there.

One store tells who wants to talk with whom; every conversation then has a connection of its own.
Whoever connects says the run's token, so that a process of another run, or no process of ours, is
not let in. Heartbeats in the store tell that a process is alive where its connection cannot: a host
without power closes nothing.
"""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from paceline.strategies.channel import SHORT_BYTES, Channel, ChannelLostError, Message

_CONNECT_SECONDS = 60.0
_BEAT_SECONDS = 1.0
_FOREVER = timedelta(days=7)

OnConnection = Callable[[Channel, Message], None]


class Rendezvous:
    """This process's way to the others; each thread that waits has its own line to the store."""

    def __init__(self, address: str, port: int, token: str, interface: str) -> None:
        self._address, self._port, self._token = address, port, token
        # Whoever reaches the store may see its keys, and must not learn the token from them.
        self._round = hashlib.sha256(token.encode()).hexdigest()[:16]
        self.interface = interface

    def store(self) -> PrefixStore:
        """A line of its own: a wait on one line blocks every other use of it."""
        line = TCPStore(self._address, self._port, is_master=False, timeout=_FOREVER)
        return PrefixStore(f"roles/{self._round}", line)

    def gather(self, rank: int, size: int, value: Any) -> list[Any]:
        """What every process says of itself, by rank, when the last one has said it."""
        store = self.store()
        store.set(f"told/{rank}", json.dumps(value))
        return [json.loads(store.get(f"told/{each}")) for each in range(size)]

    def connect(self, door: str, who: Message) -> Channel:
        """A connection to whoever accepts at this door, e.g. 'chief' or 'server-0'."""
        store = self.store()
        number = store.add(f"{door}/count", 1)
        store.set(f"{door}/{number}", json.dumps(who))
        channel = Channel(store, f"{door}/{number}/pair", 1, self.interface, _CONNECT_SECONDS)
        channel.send({"token": self._token})
        channel.send(who)
        return channel

    def accept(self, door: str, let_in: OnConnection) -> None:
        """From now on, in a thread for each connection; `let_in` handles it to its end."""
        threading.Thread(target=self._accept, args=(door, let_in), daemon=True).start()

    def _accept(self, door: str, let_in: OnConnection) -> None:
        store, number = self.store(), 0
        while True:
            number += 1
            try:
                store.wait([f"{door}/{number}"], _FOREVER)
            except RuntimeError:  # the store is gone, and the round with it
                return
            name = f"{door}/{number}/pair"
            threading.Thread(target=self._admit, args=(name, let_in), daemon=True).start()

    def _admit(self, name: str, let_in: OnConnection) -> None:
        try:
            channel = Channel(self.store(), name, 0, self.interface, _CONNECT_SECONDS)
            told = str(channel.receive(SHORT_BYTES).get("token", ""))
            if not hmac.compare_digest(told.encode(), self._token.encode()):
                return  # nobody of this run
            who = channel.receive()
        except (ChannelLostError, RuntimeError):  # it has gone again before it was let in
            return
        let_in(channel, who)


class Heartbeat:
    """Tells the others, once a second, that this process is alive."""

    def __init__(self, rendezvous: Rendezvous, rank: int, on_loss: Callable[[], None]) -> None:
        """`on_loss`: when the store is gone."""
        self._store, self._rank, self._on_loss = rendezvous.store(), rank, on_loss
        self._over = threading.Event()
        self._beat()
        threading.Thread(target=self._work, name="beat", daemon=True).start()

    def _beat(self) -> None:
        """Never twice the same, also of a process that was started again."""
        self._store.set(f"beat/{self._rank}", str(time.time_ns()))

    def _work(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            try:
                self._beat()
            except RuntimeError:
                if not self._over.is_set():
                    self._on_loss()
                return

    def stop(self) -> None:
        self._over.set()


class Heartbeats:
    """Who has been silent for how long, as the chief sees it by its own clock."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._store = rendezvous.store()
        self._heard: dict[int, tuple[bytes, float]] = {}

    def silent_seconds(self, ranks: Iterable[int]) -> dict[int, float]:
        now, told = time.monotonic(), {}
        for rank in ranks:
            beat = self._store.get(f"beat/{rank}")
            if beat != self._heard.get(rank, (b"", 0.0))[0]:
                self._heard[rank] = (beat, now)
            told[rank] = now - self._heard[rank][1]
        return told
