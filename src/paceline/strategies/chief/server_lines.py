"""The chief's lines to all servers: orders, and the copies that come back.

Updates are ordered here and nowhere else, in the same order at every server. So a copy that is
ordered between two updates is of one moment over all shards.
"""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from paceline.strategies.channel import Channel, Message, name_of_type
from paceline.strategies.flat_rows import Tensors, rows_of, tensors_of
from paceline.strategies.rendezvous import Rendezvous
from paceline.strategies.servers.shard_state import AVERAGE
from paceline.strategies.shards import Shard, shard_size

WEIGHTS = "weights"


@dataclass(frozen=True)
class Gathered:
    """What all servers hold, as whole tensors."""

    weights: Tensors
    states: dict[str, Tensors]
    """The optimizer's, by their names, e.g. 'momentum_buffer'."""
    average: Tensors | None
    num_updates: float | None


class ServerLines:
    def __init__(self, rendezvous: Rendezvous, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        numbers = range(len(shards))
        self._orders = [_connect(rendezvous, number, "orders") for number in numbers]
        self._copies = [_connect(rendezvous, number, "snapshots") for number in numbers]
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(len(shards), thread_name_prefix="copies")

    def load(self, gathered: Gathered, version: int, num_trainers: int, wire: torch.dtype) -> None:
        """Give every server its shard."""
        rows = {WEIGHTS: rows_of(gathered.weights, self.shards)}
        rows |= {name: rows_of(each, self.shards) for name, each in gathered.states.items()}
        if gathered.average is not None:
            rows[AVERAGE] = rows_of(gathered.average, self.shards)
        for number, line in enumerate(self._orders):
            line.send(
                {
                    "do": "load",
                    "pieces": [piece.as_list() for piece in self.shards[number]],
                    "rows": [name for name in rows if name != WEIGHTS],
                    "num_updates": gathered.num_updates,
                    "version": version,
                    "num_trainers": num_trainers,
                    "wire": name_of_type(wire),
                }
            )
            for row in rows.values():
                line.send_tensor(row[number])

    def add_up(self, seats: Sequence[int]) -> float:
        """Gradients become one; the length of it."""
        with self._lock:
            self._tell({"do": "add_up", "seats": list(seats)})
            told = [float(line.receive()["norm_squared"]) for line in self._orders]
        return math.sqrt(sum(told))

    def update(
        self, version: int, seats: Sequence[int], rate: float | None, factor: float = 1.0
    ) -> None:
        """With what is added up already, if no seats are named; without a rate only the version
        changes."""
        order = {"version": version, "seats": list(seats), "rate": rate, "factor": factor}
        with self._lock:
            self._tell({"do": "update", **order})

    def drop(self, seat: int, is_gone: bool = False) -> None:
        with self._lock:
            self._tell({"do": "drop", "seat": seat, "is_gone": is_gone})

    def order_copy(self, is_whole: bool) -> None:
        """Of this moment; `receive_copy` then waits for it. Whole: with what a checkpoint needs."""
        with self._lock:
            self._tell({"do": "snapshot", "whole": is_whole})

    def receive_copy(self, shapes: dict[str, torch.Size]) -> Gathered:
        told = list(self._threads.map(_receive_rows, self._copies, map(shard_size, self.shards)))
        names = list(told[0][0])
        whole = {
            name: tensors_of([rows[name] for rows, _ in told], self.shards, shapes)
            for name in names
        }
        weights, average = whole.pop(WEIGHTS), whole.pop(AVERAGE, None)
        return Gathered(weights, whole, average, told[0][1])

    def bye(self) -> None:
        with self._lock:
            self._tell({"do": "bye"})

    def _tell(self, order: Message) -> None:
        for line in self._orders:
            line.send(order)


def _connect(rendezvous: Rendezvous, number: int, line: str) -> Channel:
    return rendezvous.connect(f"server-{number}", {"line": line, "seat": -1})


def _receive_rows(line: Channel, size: int) -> tuple[Tensors, float | None]:
    told = line.receive()
    rows = {str(name): torch.empty(size) for name in told["rows"]}
    for row in rows.values():
        line.receive_into(row)
    return rows, told["num_updates"]
