"""Batches whose tokens are packed without padding.

Everything that works on single tokens (projections, feed-forward, norms) sees one long row of real
tokens; only attention has to know where sentences begin and end. No parameters.

Where tokens lie is found on the host, by whoever makes the batch, and is sent with it: a device
could be asked only by waiting for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Lengths = npt.NDArray[np.integer[Any]]
Value = TypeVar("Value")


class kept(Generic[Value]):  # noqa: N801  (used like `property`)
    """A property that is computed once, as `functools.cached_property`: whose lock, in Python
    3.11, `torch.compile` cannot look into."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make, self._name = make, make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type) -> Value:
        value = self._make(instance)
        object.__setattr__(instance, self._name, value)  # found from now on, instead of this
        return value


@dataclass(frozen=True, eq=False)
class Packing:
    """Which places of a padded (sentences, length) batch hold real tokens."""

    num_sentences: int
    length: int
    """Of the longest sentence."""
    places: Tensor
    """Of each packed token, its place in the flattened padded batch."""
    starts: Tensor
    """Of each sentence, the number of its first packed token; and one past the last token."""

    @classmethod
    def of(cls, is_real: Tensor) -> "Packing":
        """From a padded batch; one on a device is waited for."""
        mask = is_real.cpu().numpy()
        places = np.flatnonzero(mask)
        starts = _starts(mask.sum(1))
        num_sentences, length = mask.shape
        return cls(num_sentences, length, torch.from_numpy(places), torch.from_numpy(starts))

    @classmethod
    def of_lengths(cls, lengths: Lengths) -> "Packing":
        starts, longest = _starts(lengths), int(lengths.max(initial=0))
        # Token t of sentence s has number starts[s] + t and place s * longest + t.
        shifts = np.arange(len(lengths)) * longest - starts[:-1]
        places = np.arange(starts[-1]) + np.repeat(shifts, lengths)
        return cls(len(lengths), longest, torch.from_numpy(places), torch.from_numpy(starts))

    def to(self, device: torch.device) -> "Packing":
        return Packing(
            self.num_sentences, self.length, self.places.to(device), self.starts.to(device)
        )

    @property
    def num_tokens(self) -> int:
        return len(self.places)

    @property
    def is_full(self) -> bool:
        """Whether no place is padding."""
        return self.num_tokens == self.num_sentences * self.length

    @kept
    def positions(self) -> Tensor:
        """Of each packed token, its position in its sentence."""
        return self.places % self.length

    @kept
    def is_real(self) -> Tensor:
        """(sentences, length)"""
        flat = torch.zeros(
            self.num_sentences * self.length, dtype=torch.bool, device=self.places.device
        )
        return flat.index_fill_(0, self.places, True).view(self.num_sentences, self.length)

    @kept
    def numbers(self) -> Tensor:
        """Of each place, the number of its packed token; padding points at token 0."""
        flat = self.places.new_zeros(self.num_sentences * self.length)
        counted = torch.arange(self.num_tokens, device=flat.device)
        return flat.index_copy_(0, self.places, counted).view(self.num_sentences, self.length)

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.places)


def _starts(lengths: Lengths) -> npt.NDArray[np.int64]:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Queries of one packing that look at keys of another (or the same); all layers share it."""

    queries: Packing
    keys: Packing
    num_heads: int
    is_causal: bool = False

    @kept
    def starts(self) -> Tensor:
        """Of queries and of keys, (2, sentences + 1)."""
        return torch.stack([self.queries.starts, self.keys.starts])

    @kept
    def small_starts(self) -> tuple[Tensor, Tensor]:
        """The same in 32 bits, as CUDA's kernels want them."""
        return self.queries.starts.int(), self.keys.starts.int()


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """Sentences and their translations: what a Transformer is trained on."""

    ids: Tensor
    """Of all source tokens, then of all tokens that go into the decoder."""
    positions: Tensor
    """Of the same tokens, in their sentences."""
    labels: Tensor
    """What is to follow each token that goes into the decoder."""
    sources: Packing
    targets: Packing

    @property
    def longest(self) -> int:
        return max(self.sources.length, self.targets.length)


Ids = Sequence[npt.NDArray[np.integer[Any]]]


def pack_pairs(sources: Ids, targets_in: Ids, targets_out: Ids) -> PackedPairs:
    """`targets_in` begin with the start token, `targets_out` end with the end token."""
    packings = [
        Packing.of_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        for rows in (sources, targets_in)
    ]
    return PackedPairs(
        ids=_joined([*sources, *targets_in]),
        positions=torch.cat([packing.positions for packing in packings]),
        labels=_joined(targets_out),
        sources=packings[0],
        targets=packings[1],
    )


def _joined(rows: Ids) -> Tensor:
    return torch.from_numpy(np.concatenate(rows).astype(np.int64, copy=False))


def pack_padded(source: Tensor, target_in: Tensor, target_out: Tensor, pad_id: int) -> PackedPairs:
    """The same from padded (sentences, length) batches; those on a device are waited for."""
    device = source.device
    sources, targets = (Packing.of(side != pad_id).to(device) for side in (source, target_out))
    return PackedPairs(
        ids=torch.cat([sources.pack(source), targets.pack(target_in)]),
        positions=torch.cat([sources.positions, targets.positions]),
        labels=targets.pack(target_out),
        sources=sources,
        targets=targets,
    )
