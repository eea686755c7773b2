"""Who computes which micro-batches, and which gradients make an update. Pure: no threads, no torch.

A lease is a stretch of the stream of micro-batches that one trainer computes. What was handed out
and not trained, because its trainer is gone or came too late, is handed out again; so every sample
is trained once per epoch, whoever takes it.

A version is a number of updates. The staleness of a gradient is how many updates were made since
the weights that it was computed with.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.settings import StrategySettings, default_staleness


@dataclass(frozen=True)
class Lease:
    number: int
    indices: range


@dataclass(frozen=True)
class Arrival:
    """A gradient that lies at all servers."""

    seat: int
    """Of the trainer; one that comes back has another."""
    place: int
    """Of the trainer among all; sums are made in this order."""
    lease: Lease
    version: int
    """Of the weights that it was computed with; where servers differed, the oldest."""


@dataclass
class Positions:
    """The stream of micro-batches: what is next, and what has come back."""

    next: int = 0
    returned: list[range] = field(default_factory=list)
    num_trained: int = 0
    _number: int = 0

    def take(self, count: int) -> Lease:
        """The earliest that nobody has."""
        if self.returned:
            indices = self.returned.pop(0)
        else:
            indices = range(self.next, self.next + count)
            self.next = indices.stop
        self._number += 1
        return Lease(self._number, indices)

    def give_back(self, lease: Lease) -> None:
        self.returned = _sorted([*self.returned, lease.indices])

    def note_trained(self, leases: Iterable[Lease]) -> None:
        self.num_trained += sum(len(lease.indices) for lease in leases)

    def numbers(self, held: Iterable[Lease]) -> dict[str, Any]:
        """For a checkpoint: what trainers hold now is handed out again by a later attempt."""
        untrained = _sorted([*self.returned, *(lease.indices for lease in held)])
        return {
            "untrained": [[part.start, part.stop] for part in untrained],
            "num_trained": self.num_trained,
        }

    @classmethod
    def of_numbers(cls, position: int, numbers: dict[str, Any]) -> "Positions":
        returned = [range(start, stop) for start, stop in numbers.get("untrained", [])]
        return cls(position, returned, numbers.get("num_trained", position))


def _sorted(parts: Iterable[range]) -> list[range]:
    return sorted(parts, key=lambda part: part.start)


def share_of(first: int, count: int, place: int, num_shares: int) -> range:
    """The micro-batches of one of several trainers that share a step."""
    return range(first + place * count // num_shares, first + (place + 1) * count // num_shares)


@dataclass(frozen=True)
class Pace:
    """What the modes differ in."""

    settings: StrategySettings
    num_trainers: int

    @property
    def is_sync(self) -> bool:
        return self.settings.mode == "sync"

    @property
    def has_fixed_shares(self) -> bool:
        """sync without backup: the k-th trainer always has the k-th share of a step."""
        return self.is_sync and not self.settings.backup

    @property
    def num_shares(self) -> int:
        """Gradients that make an update."""
        return self.num_trainers - self.settings.backup if self.is_sync else 1

    @property
    def overlaps(self) -> bool:
        return self.settings.overlap and not self.is_sync

    @property
    def most_staleness(self) -> int | None:
        """None is no limit."""
        if self.settings.mode == "bounded":
            told = self.settings.staleness
            return default_staleness(self.num_trainers) if told is None else told
        return 0 if self.is_sync else None

    def lease_size(self, num_micro: int) -> int:
        """Micro-batches of a lease, where a step has `num_micro`."""
        return max(1, num_micro // self.num_shares)

    def notes(self, clips: bool, num_micro: int) -> list[str]:
        """What a user may not expect of these settings, where a step has `num_micro`
        micro-batches."""
        found = []
        in_step = self.lease_size(num_micro) * self.num_shares
        if self.is_sync and self.settings.backup and in_step < num_micro:
            found.append(
                f"{self.num_shares} gradients make a step, and its {num_micro} micro-batches "
                f"cannot be shared evenly by them: it has {in_step}"
            )
        if clips and not self.is_sync:
            found.append(
                "optimizer.clip_norm: out of step every update is one worker's gradient, which the "
                "worker clips before it sends it"
            )
        most = self.most_staleness
        if most is not None and not self.is_sync and most < self.num_trainers - 1:
            found.append(
                f"strategy.staleness={most} lets {most + 1} of {self.num_trainers} trainers "
                f"compute at a time; {self.num_trainers - 1} would let all of them"
            )
        return found

    def may_begin(self, others: Sequence[int], weights: int, version: int) -> bool:
        """Whether a trainer may compute with weights of this version: all gradients that are on
        their way, `others`, and this one must find their update in time."""
        most = self.most_staleness
        if most is None or self.is_sync:
            return True
        return _fits([*others, weights], version, most)

    def is_wanted(self, weights: int, num_arrived: int, version: int) -> bool:
        """Whether a gradient that is about to be sent can still become part of an update."""
        return not self.is_sync or (weights == version and num_arrived < self.num_shares)

    def choose(
        self, waiting: Sequence[Arrival], computing: Sequence[int], version: int
    ) -> list[Arrival]:
        """Of what has arrived, the next update; nothing where it must wait. `computing` are the
        versions of the weights that trainers use whose gradients have not arrived."""
        if self.is_sync:
            current = [arrival for arrival in waiting if arrival.version == version]
            is_whole = len(current) >= self.num_shares
            return sorted(current, key=lambda a: a.place)[: self.num_shares] if is_whole else []
        oldest = sorted(waiting, key=lambda arrival: arrival.version)[:1]
        most = self.most_staleness
        if not oldest or most is None:
            return oldest
        rest = [a.version for a in waiting if a is not oldest[0]]
        return oldest if _fits([*rest, *computing], version + 1, most) else []

    def too_late(self, waiting: Sequence[Arrival], version: int) -> list[Arrival]:
        """Of what has arrived, what no update will take."""
        return [a for a in waiting if self.is_sync and a.version < version]


def _fits(weights: Iterable[int], version: int, most: int) -> bool:
    """Whether gradients on these weights can be applied one by one, the oldest first, and none of
    them with a staleness above `most`."""
    return all(version + n - each <= most for n, each in enumerate(sorted(weights)))
