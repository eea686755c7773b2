"""Which samples are in which micro-batch of the one endless stream, and what a batch is told.

A pure function of the seed and the position, never of the number of processes. Batches have equally
many samples, or, where samples have lengths (tokens), as many as fit into a number of tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.data import order
from paceline.data.text_batches import TextBatches
from paceline.errors import UserError

Numbers = npt.NDArray[np.int64]
Split = int | range | Sequence[int] | npt.NDArray[Any]
"""Samples of a split: how many there are (0, 1, 2, ...), or their numbers."""
TRAIN, VALIDATION = "train", "validation"
_HELD_OUT = 10
"""Where a task names no validation samples, one in so many is kept for it."""


class Samples(np.ndarray):
    """The numbers of a batch's samples: an array of whole numbers that knows a little more."""

    split: str
    """train, validation or whatever else the task named."""
    epochs: Numbers | None
    """In which epoch each sample is taken; None in evaluation."""
    share_of_run: float
    """How much of the run is over when this batch's turn comes, from 0 to 1."""
    num_units: int
    """What throughput counts of them: samples, or tokens where samples have lengths."""

    def __array_finalize__(self, parent: Any) -> None:
        self.split = getattr(parent, "split", TRAIN)
        self.share_of_run = getattr(parent, "share_of_run", 1.0)
        self.epochs = None
        self.num_units = self.size


def samples_of(
    numbers: Any, split: str, epochs: Numbers | None = None, share_of_run: float = 1.0
) -> Samples:
    samples = np.asarray(numbers, dtype=np.int64).view(Samples)
    samples.split, samples.epochs, samples.share_of_run = split, epochs, share_of_run
    return samples


class Stream(Protocol):
    """Where in the list of training samples the index-th micro-batch takes its own."""

    def num_units(self, index: int) -> int: ...

    def epochs_at(self, position: int) -> float: ...

    def take(self, index: int) -> tuple[Numbers, Numbers]:
        """Places in the list, and the epoch of each."""


class EqualBatches:
    """Every micro-batch has as many samples, also where an epoch ends within it."""

    def __init__(self, num_samples: int, size: int, seed: int) -> None:
        self._num_samples, self._size, self._seed = num_samples, size, seed

    def num_units(self, _index: int) -> int:
        return self._size

    def epochs_at(self, position: int) -> float:
        return position * self._size / self._num_samples

    def take(self, index: int) -> tuple[Numbers, Numbers]:
        first = index * self._size
        return order.samples_at(self._num_samples, self._seed, first, first + self._size)


class LengthBatches:
    """Samples of one length together; at most so many tokens (or so many samples) in each."""

    def __init__(self, lengths: npt.NDArray[np.int32], size: int, by: str, seed: int) -> None:
        self._batches = TextBatches(lengths, size, by, seed)

    def num_units(self, index: int) -> int:
        return self._batches.num_tokens(index)

    def epochs_at(self, position: int) -> float:
        return position / self._batches.per_epoch

    def take(self, index: int) -> tuple[Numbers, Numbers]:
        places = self._batches.pairs(index)
        return places, np.full(len(places), index // self._batches.per_epoch)


def as_splits(opened: Any, task: str) -> dict[str, range | Numbers]:
    """What `open` returned, as sample numbers by split."""
    if isinstance(opened, int | np.integer) and not isinstance(opened, bool):
        opened = _held_out(int(opened))
    if not isinstance(opened, Mapping) or TRAIN not in opened:
        raise UserError(
            f"{task}.open returned {_shown(opened)}",
            "return the samples of each split, by number: "
            "{'train': range(0, 900), 'validation': range(900, 1000)}",
        )
    splits = {str(name): _numbers(split, f"{task}.open, {name}") for name, split in opened.items()}
    if not len(splits[TRAIN]):
        raise UserError(f"{task}.open found no training samples", "look at the data it was given")
    return splits


def _held_out(num_samples: int) -> dict[str, Split]:
    """Always the same tenth, drawn at random because data is often sorted."""
    drawn = order.generator(0).permutation(num_samples)
    num = num_samples // _HELD_OUT
    return {TRAIN: np.sort(drawn[num:]), VALIDATION: np.sort(drawn[:num])}


def _numbers(split: Any, where: str) -> range | Numbers:
    if isinstance(split, int | np.integer) and not isinstance(split, bool):
        return range(int(split))
    if isinstance(split, range):
        return split
    try:
        numbers = np.asarray(split)
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0))
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
        raise UserError(
            f"{where}: {_shown(split)} is no list of sample numbers",
            "give how many samples there are, a range, or an array of whole numbers",
        )
    return numbers.astype(np.int64)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def pick(numbers: range | Numbers, places: Numbers) -> Numbers:
    if isinstance(numbers, range):
        return numbers.start + numbers.step * places
    return numbers[places]
