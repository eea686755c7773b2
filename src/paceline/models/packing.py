"""Batches whose tokens are packed without padding.

Everything that works on single tokens (projections, feed-forward, norms) sees one long row of real
tokens; only attention has to know where sentences begin and end. No parameters.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packing:
    """Which places of a padded (sentences, length) batch hold real tokens."""

    is_real: Tensor

    @property
    def num_sentences(self) -> int:
        return self.is_real.shape[0]

    @property
    def length(self) -> int:
        return self.is_real.shape[1]

    @cached_property
    def places(self) -> Tensor:
        """Of each packed token, its place in the flattened padded batch."""
        return self.is_real.flatten().nonzero().squeeze(1)

    @cached_property
    def positions(self) -> Tensor:
        """Of each packed token, its position in its sentence."""
        return self.places % self.length

    @cached_property
    def numbers(self) -> Tensor:
        """Of each place, the number of its packed token; padding points at token 0."""
        numbers = self.is_real.flatten().cumsum(0) - 1
        return numbers.mul_(self.is_real.flatten()).view_as(self.is_real)

    @cached_property
    def starts(self) -> Tensor:
        """Of each sentence, the number of its first packed token; and one past the last token."""
        return F.pad(self.is_real.sum(1).cumsum(0), (1, 0))

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.places)


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Queries of one packing that look at keys of another (or the same); all layers share it."""

    queries: Packing
    keys: Packing
    num_heads: int
    is_causal: bool = False

    @cached_property
    def starts(self) -> Tensor:
        """Of queries and of keys, (2, sentences + 1)."""
        return torch.stack([self.queries.starts, self.keys.starts])
