"""A parameter server: it holds a shard of the weights, takes gradients in, updates, gives weights.

It decides nothing. A gradient that has arrived lies aside until the chief says in which update it
belongs; so all servers make the same updates in the same order, and a worker that dies while it
sends leaves no trace. A thread stands for each connection, and one for the chief's orders.
"""

import threading
import time
from dataclasses import dataclass, field

import torch

from paceline.errors import UserError
from paceline.record.schema import CHECKPOINT, NETWORK, OPTIMIZER
from paceline.settings import STATES_PER_WEIGHT, Recipe
from paceline.strategies.channel import Channel, ChannelLostError, Message, type_named
from paceline.strategies.servers.shard_state import ShardState, bytes_needed
from paceline.strategies.servers.shared_clock import SharedClock
from paceline.strategies.shards import Shard, read_shard, shard_size
from paceline.train.guard import is_lack_of_memory
from paceline.units import count_of, format_bytes

_MORE_SERVERS = (
    "start more servers, each with a smaller shard (--roles ...,server=N), or put servers on hosts "
    "with more memory"
)


@dataclass
class Traffic:
    """Tensors in and out since the last line of the record."""

    received_bytes: int = 0
    sent_bytes: int = 0
    num_pushes: int = 0
    num_pulls: int = 0


@dataclass
class Parked:
    """A gradient that has arrived, until the chief decides on it."""

    row: torch.Tensor
    lease: int | None = None


@dataclass
class Server:
    name: str
    """As people say it: 'server 0 on host b'."""
    recipe: Recipe
    clock: SharedClock
    free_bytes: int
    """That this process may use."""
    version: int = -1
    """Updates since the beginning of the run; -1 until the weights are here."""
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._parked: dict[int, Parked] = {}
        self._in_use: list[Parked] = []
        """Of the update that is being made."""
        self._published: tuple[int, torch.Tensor] | None = None
        self._snapshots: list[Message] = []
        self._state: ShardState | None = None
        self.wire = torch.float32
        self.problem: BaseException | None = None
        self.is_over = threading.Event()
        self.shard_bytes = 0

    def let_in(self, channel: Channel, who: Message) -> None:
        """In a thread of this guest's own, to its end."""
        serve = {
            "orders": self._follow_orders,
            "snapshots": self._send_snapshots,
            "push": self._take_gradients,
            "pull": self._give_weights,
        }[str(who["line"])]
        try:
            serve(channel, int(who["seat"]))
        except ChannelLostError as error:
            if who["line"] == "orders" and not self.is_over.is_set():
                self._fail(ChannelLostError(f"the chief is gone: {error}"))
        except BaseException as error:
            self._fail(self._as_told(error))

    def _as_told(self, error: BaseException) -> BaseException:
        """Doing it again does not help a server without memory."""
        if isinstance(error, UserError) or not is_lack_of_memory(error):
            return error
        return UserError(
            f"{self.name} is out of memory: {str(error).partition(chr(10))[0] or 'none left'}",
            _MORE_SERVERS,
        )

    def _fail(self, error: BaseException) -> None:
        self.problem = self.problem or error
        self.is_over.set()

    # ---- the chief's orders

    def _follow_orders(self, channel: Channel, _seat: int) -> None:
        doing = {
            "load": self._load,
            "add_up": self._add_up,
            "update": self._update,
            "drop": self._drop,
            "snapshot": self._take_snapshot,
        }
        while True:
            order = channel.receive()
            if order["do"] == "bye":
                self.is_over.set()
                return
            doing[order["do"]](channel, order)

    def _load(self, channel: Channel, order: Message) -> None:
        shard = read_shard(order["pieces"])
        self.refuse_without_memory(shard, order["num_trainers"])
        self.wire = type_named(order["wire"])
        size = shard_size(shard)
        weights = torch.empty(size)
        channel.receive_into(weights)
        rows = {}
        for name in order["rows"]:
            rows[name] = torch.empty(size)
            channel.receive_into(rows[name])
        state = ShardState(shard, self.recipe.optimizer, weights)
        state.load(rows, order["num_updates"])
        with self._changed:
            self._state, self.version, self._published = state, order["version"], None
            self.shard_bytes = 4 * size
            self._changed.notify_all()

    def refuse_without_memory(self, shard: Shard, num_trainers: int) -> None:
        settings = self.recipe.optimizer
        states = STATES_PER_WEIGHT[settings.kind]
        needed = bytes_needed(shard, num_trainers, states, settings.average > 0)
        if needed > self.free_bytes:
            raise UserError(
                f"{self.name} has too little memory: its shard of "
                f"{format_bytes(4 * shard_size(shard))}, the optimizer's state for it and the "
                f"gradients of {count_of(num_trainers, 'worker')} take {format_bytes(needed)}, "
                f"and {format_bytes(self.free_bytes)} are free",
                _MORE_SERVERS,
            )

    def _add_up(self, channel: Channel, order: Message) -> None:
        """The gradients of an update together, and how long their sum is."""
        with self._changed, self.clock.phase(OPTIMIZER):
            self._collect(order)
            norm_squared = self._weights.norm_squared()
        channel.send({"norm_squared": norm_squared})

    def _collect(self, order: Message) -> None:
        parked = [self._parked[seat] for seat in order["seats"]]
        self._weights.add_up([each.row for each in parked])
        self._in_use = parked

    def _update(self, _channel: Channel, order: Message) -> None:
        with self._changed, self.clock.phase(OPTIMIZER):
            if order["seats"]:
                self._collect(order)
            if order["rate"] is not None:
                self._weights.update(order["rate"], order["factor"])
            for each in self._in_use:
                each.lease = None
            self._in_use = []
            self.version, self._published = order["version"], None
            self._changed.notify_all()

    def _drop(self, _channel: Channel, order: Message) -> None:
        """A gradient that came too late, or whose worker is gone."""
        with self._changed:
            parked = self._parked.get(order["seat"])
            if parked is not None:
                parked.lease = None
            if order["is_gone"]:
                self._parked.pop(order["seat"], None)
            self._changed.notify_all()

    @property
    def _weights(self) -> ShardState:
        assert self._state is not None  # noqa: S101  (the chief's first order loads it)
        return self._state

    # ---- snapshots for evaluation and checkpoints

    def _take_snapshot(self, _channel: Channel, order: Message) -> None:
        """Copied in the order of updates, sent while the next ones are made."""
        with self._changed, self.clock.phase(CHECKPOINT):
            state = self._weights
            rows = {"weights": state.weights, **state.rows(with_states=order["whole"])}
            copies = {name: row.clone() for name, row in rows.items()}
            self._snapshots.append({"copies": copies, "num_updates": state.num_updates()})
            self._changed.notify_all()

    def _send_snapshots(self, channel: Channel, _seat: int) -> None:
        while not self.is_over.is_set():
            with self._changed:
                self._changed.wait_for(lambda: bool(self._snapshots), timeout=1.0)
                if not self._snapshots:
                    continue
                snapshot = self._snapshots.pop(0)
            copies = snapshot["copies"]
            with self.clock.phase(NETWORK):
                channel.send({"rows": list(copies), "num_updates": snapshot["num_updates"]})
                for row in copies.values():
                    channel.send_tensor(row)
            self._count(sent=sum(4 * row.numel() for row in copies.values()))

    # ---- trainers

    def _take_gradients(self, channel: Channel, seat: int) -> None:
        self._wait_until_loaded()
        size = shard_size(self._weights.shard)
        parked = Parked(torch.empty(size, dtype=self.wire))
        with self._changed:
            self._parked[seat] = parked
        while True:
            lease = channel.receive()["lease"]
            with self._changed:  # the gradient before may still be waiting for its update
                self._changed.wait_for(lambda: parked.lease is None)
            with self.clock.phase(NETWORK):
                channel.receive_into(parked.row)
            with self._changed:
                parked.lease = lease
            self._count(received=parked.row.numel() * parked.row.element_size(), pushes=1)
            channel.send({"lease": lease})

    def _give_weights(self, channel: Channel, _seat: int) -> None:
        self._wait_until_loaded()
        while True:
            least = channel.receive()["least"]
            began = time.perf_counter()
            with self._changed:
                while self.version < least:
                    self._changed.wait()
                version, row = self._publish()
            waited = time.perf_counter() - began
            with self.clock.phase(NETWORK):
                channel.send({"version": version, "waited_seconds": round(waited, 6)})
                channel.send_tensor(row)
            self._count(sent=row.numel() * row.element_size(), pulls=1)

    def _publish(self) -> tuple[int, torch.Tensor]:
        """What stays as it is while it is sent; one copy for all who ask for this version. In step
        nobody needs one: the next update waits until all have what they asked for."""
        if self._published is None:
            strategy = self.recipe.strategy
            is_in_step = strategy.mode == "sync" and not strategy.backup
            row = self._weights.weights.to(self.wire, copy=not is_in_step)
            self._published = (self.version, row)
        return self._published

    def _wait_until_loaded(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._state is not None)

    def _count(self, received: int = 0, sent: int = 0, pushes: int = 0, pulls: int = 0) -> None:
        with self._changed:
            self.traffic.received_bytes += received
            self.traffic.sent_bytes += sent
            self.traffic.num_pushes += pushes
            self.traffic.num_pulls += pulls

    def take_traffic(self) -> Traffic:
        with self._changed:
            taken, self.traffic = self.traffic, Traffic()
            return taken
