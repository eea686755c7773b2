"""Which sentence pairs make a micro-batch: by length, and a pure function of seed and number.

Pairs are sorted by target length. Where one batch ends and the next begins depends on the lengths
alone and is the same in every epoch; which of the pairs of equal length goes where, and in which
order the batches come, is drawn anew for each epoch. So the index-th micro-batch can be found
without going through those before it, and it does not depend on the number of processes.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.data.order import generator

_TIES, _BATCH_ORDER = 4, 5
Indices = npt.NDArray[np.int64]


class TextBatches:
    def __init__(self, lengths: npt.NDArray[np.int32], size: int, by: str, seed: int) -> None:
        """`lengths` counts target tokens with their end; a batch has at most `size` of them (or
        that many sentences), and a single longer sentence is a batch of its own."""
        self._lengths = lengths
        self._seed = seed
        ordered = np.sort(lengths, kind="stable")
        self._bounds = _bounds_by_tokens(ordered, size) if by == "tokens" else _every(ordered, size)
        sums = np.concatenate([[0], np.cumsum(ordered, dtype=np.int64)])
        self._tokens = np.diff(sums[self._bounds])
        self._epoch_order = lru_cache(maxsize=2)(self._draw_epoch)

    @property
    def per_epoch(self) -> int:
        return len(self._bounds) - 1

    def num_tokens(self, index: int) -> int:
        epoch, number = divmod(index, self.per_epoch)
        return int(self._tokens[self._epoch_order(epoch)[1][number]])

    def pairs(self, index: int) -> Indices:
        """The numbers of the pairs in the index-th micro-batch of the endless stream."""
        epoch, number = divmod(index, self.per_epoch)
        ordered, slots = self._epoch_order(epoch)
        slot = slots[number]
        return ordered[self._bounds[slot] : self._bounds[slot + 1]]

    def _draw_epoch(self, epoch: int) -> tuple[Indices, Indices]:
        shuffled = generator(self._seed, _TIES, epoch).permutation(len(self._lengths))
        ordered = shuffled[np.argsort(self._lengths[shuffled], kind="stable")]
        return ordered, generator(self._seed, _BATCH_ORDER, epoch).permutation(self.per_epoch)


def _bounds_by_tokens(ordered: npt.NDArray[np.int32], size: int) -> Indices:
    """Cut greedily; lengths rise, so a run of equal lengths can be cut in one go."""
    bounds, start, total = [0], 0, 0
    for length, count in zip(*np.unique(ordered, return_counts=True), strict=True):
        left = int(count)
        while left:
            fits = max((size - total) // int(length), 0)
            if fits == 0 and total > 0:
                bounds.append(start)
                total = 0
                continue
            taken = min(left, max(fits, 1))
            start, total, left = start + taken, total + taken * int(length), left - taken
    if bounds[-1] != start:
        bounds.append(start)
    return np.array(bounds, dtype=np.int64)


def _every(ordered: npt.NDArray[np.int32], size: int) -> Indices:
    return np.append(np.arange(0, len(ordered), size), len(ordered)).astype(np.int64)
