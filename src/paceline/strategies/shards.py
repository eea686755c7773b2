"""Which server holds which part of which weight: balanced by bytes, large tensors split. Pure.

A shard is one flat row of numbers, the pieces of its server one after another. Pieces of one group
of the optimizer lie together, so that a server updates each group in one operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.errors import UserError

_SPLIT_SHARE = 8
"""A tensor of more than a shard's eighth is cut into as many parts as there are servers."""


@dataclass(frozen=True)
class Weight:
    """A trained tensor of the network."""

    name: str
    num_values: int
    group: int
    """Of the optimizer."""
    num_rows: int = 0
    """Of a tensor whose update needs all of it at once (Muon's kernels); 0 of one to be split."""


@dataclass(frozen=True)
class Piece:
    name: str
    start: int
    stop: int
    """Of the tensor's values in row-major order."""
    group: int
    num_rows: int = 0

    @property
    def num_values(self) -> int:
        return self.stop - self.start

    def as_list(self) -> list[str | int]:
        return [self.name, self.start, self.stop, self.group, self.num_rows]


Shard = tuple[Piece, ...]


def shard_size(shard: Shard) -> int:
    return sum(piece.num_values for piece in shard)


def cut(weights: Sequence[Weight], num_servers: int) -> tuple[Shard, ...]:
    """The largest piece goes to whoever has least so far."""
    if len(weights) < num_servers:
        raise UserError(
            f"the roles name {num_servers} servers, and the network has only {len(weights)} "
            "trained tensors to share among them",
            f"start at most server={len(weights)}",
        )
    pieces = [piece for weight in weights for piece in _pieces_of(weight, weights, num_servers)]
    shares: list[list[Piece]] = [[] for _ in range(num_servers)]
    loads = [0] * num_servers
    for piece in sorted(pieces, key=lambda piece: -piece.num_values):
        least = loads.index(min(loads))
        shares[least].append(piece)
        loads[least] += piece.num_values
    places = {weight.name: number for number, weight in enumerate(weights)}
    return tuple(
        tuple(sorted(share, key=lambda p: (p.group, p.num_rows > 0, places[p.name], p.start)))
        for share in shares
    )


def _pieces_of(weight: Weight, weights: Sequence[Weight], num_servers: int) -> list[Piece]:
    fair = sum(each.num_values for each in weights) / num_servers
    is_small = weight.num_values <= fair / _SPLIT_SHARE or weight.num_values < num_servers
    if num_servers == 1 or is_small or weight.num_rows:
        return [Piece(weight.name, 0, weight.num_values, weight.group, weight.num_rows)]
    edges = [weight.num_values * n // num_servers for n in range(num_servers + 1)]
    return [Piece(weight.name, start, stop, weight.group) for start, stop in pairwise(edges)]


def read_shard(pieces: Sequence[Sequence[object]]) -> Shard:
    """From what `Piece.as_list` wrote."""
    return tuple(
        Piece(str(name), *(int(str(number)) for number in numbers)) for name, *numbers in pieces
    )
