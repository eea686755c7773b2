"""The base of every task whose samples are independent, of yours as of those that are shipped.

Written by a task: `open`, `build_model`, `batch`, `loss`, `evaluate` and `best_by`; where it has
them also `unit`, `Settings` and `lengths`. Order, micro-batches, epochs, devices, reading ahead and
the dealing out of evaluation are here. docs/own-task.md is the page for it.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from paceline.config import Section
from paceline.data import order
from paceline.data.card import CARD_NAME, data_fingerprint
from paceline.data.places import data_directory
from paceline.data.readahead import Filling, fill_at_once
from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.tasks.batch_values import num_bytes, to_device
from paceline.tasks.contract import Scores, Task
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import (
    TRAIN,
    EqualBatches,
    LengthBatches,
    Numbers,
    Samples,
    Split,
    Stream,
    as_splits,
    pick,
    samples_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from paceline.world import World


class TaskSettings(Section):
    """Settings of your own: they stand in the recipe beside those that every task has."""


class SampleTask(Task):
    """Your task: what its samples are, the network, the loss of a batch, and the scores."""

    unit: ClassVar[str] = "sample"
    num_train_scored: ClassVar[int] = 1000
    """Training samples that are scored beside validation, unless the recipe says how many."""
    reads_ahead: ClassVar[bool] = True
    """Whether threads call `batch` while the network computes."""
    input_remedy: ClassVar[str] = "make `batch` cheaper (prepare what does not change once)"

    Settings: ClassVar[type[Section]] = TaskSettings

    def __init__(self, recipe: Recipe, device: "torch.device") -> None:
        super().__init__(recipe, device)
        self.data = data_directory(recipe.data) if recipe.data else None
        self._splits = as_splits(self._open(), type(self).__name__)
        self.num_train = len(self.split_numbers(TRAIN))
        self.data_fingerprint = data_fingerprint(self.data, self._sizes())
        self._stream = self._open_stream()
        self._batch_bytes: int | None = None

    # ---- what a task writes

    @abstractmethod
    def open(self, data: Any) -> "Mapping[str, Split] | int":
        """Open the data (the recipe's `data` as a path; None where it names none), and return the
        samples of each split: how many there are, or their numbers. An int alone is the number of
        all: a tenth of them, drawn once and for all, is kept for validation."""

    @abstractmethod
    def batch(self, samples: Samples, rng: np.random.Generator | None) -> Any:
        """These samples as arrays or tensors on the CPU, in tuples, dicts or dataclasses.

        A pure function of its arguments: threads call it ahead and in any order. Random changes
        (augmentation) come from `rng` alone; it is None in evaluation, which has none."""

    @abstractmethod
    def evaluate(self, model: "nn.Module", batches: ScoreBatches) -> Scores:
        """Go through the batches, which are this process's share, and return
        `Scores.of_sums(num, loss=..., ...)`; 'loss' and `best_by` must be among the names."""

    def lengths(self, _samples: Numbers) -> npt.NDArray[Any] | None:
        """Units (tokens) of each of these training samples; then `batch.global` and `batch.micro`
        count units. None: a sample is a unit."""
        return None

    # ---- what is inherited

    @property
    def settings(self) -> Any:
        """The values of `Settings`, and of all other settings of the recipe."""
        return self.recipe

    def _open(self) -> Any:
        try:
            return self.open(self.data)
        except FileNotFoundError as error:
            raise UserError(
                f"{type(self).__name__}.open: there is no file {error.filename or error}",
                "check the setting 'data'",
            ) from error

    def _open_stream(self) -> Stream:
        numbers, batch = self.split_numbers(TRAIN), self.recipe.batch
        lengths = self.lengths(pick(numbers, np.arange(len(numbers))))
        if lengths is None:
            return EqualBatches(self.num_train, self.micro_size, self.recipe.seed)
        by = getattr(batch, "by", "tokens")
        return LengthBatches(np.asarray(lengths, np.int32), self.micro_size, by, self.recipe.seed)

    def _sizes(self) -> dict[str, int]:
        return {name: len(numbers) for name, numbers in self._splits.items()}

    def data_facts(self) -> dict[str, dict[str, Any]]:
        """How many samples there are, where no card says so."""
        has_card = self.data is not None and (self.data / CARD_NAME).is_file()
        return {} if has_card else {"split_sizes": self._sizes()}

    def split_numbers(self, split: str) -> range | Numbers:
        """The numbers of a split's samples."""
        if split not in self._splits:
            raise UserError(
                f"the data has no split '{split}'", f"name one of: {', '.join(self._splits)}"
            )
        return self._splits[split]

    @property
    def micro_size(self) -> int:
        return self.recipe.batch.micro_size

    def num_units(self, index: int) -> int:
        return self._stream.num_units(index)

    def epochs_at(self, position: int) -> float:
        return self._stream.epochs_at(position)

    def samples(self, index: int) -> Samples:
        """Which samples are in the index-th micro-batch of the stream."""
        places, epochs = self._stream.take(index)
        share = index / (self.recipe.steps * self.micro_batches_per_step(1))
        samples = samples_of(pick(self.split_numbers(TRAIN), places), TRAIN, epochs, share)
        samples.num_units = self.num_units(index)
        return samples

    def fill(self, samples: Samples, rng: np.random.Generator | None) -> Filling:
        """A batch on its way; by default one piece of work, a call of `batch`."""
        return WholeBatch(self, samples, rng)

    def begin_batch(self, index: int) -> Filling:
        return self.fill(self.samples(index), order.micro_batch_generator(self.recipe.seed, index))

    def micro_batch(self, index: int) -> Any:
        return self.on_device(fill_at_once(self.begin_batch(index)))

    def on_device(self, batch: Any) -> Any:
        return to_device(batch, self.device)

    @property
    def asked_workers(self) -> int | None:
        """The recipe's `input.workers`, where it has one."""
        asked: int | None = getattr(getattr(self.recipe, "input", None), "workers", None)
        return asked

    @property
    def largest_batch_bytes(self) -> int:
        """Of the first one: batches of a run are about equally large."""
        if self._batch_bytes is None:
            self._batch_bytes = num_bytes(fill_at_once(self.begin_batch(0)))
        return self._batch_bytes

    def score(self, model: "nn.Module", split: str, world: "World", final: bool = False) -> Scores:
        numbers = pick_all(self.split_numbers(split))
        batches = ScoreBatches(self, samples_of(numbers, split), world, final)
        return self.score_batches(model, batches)

    def score_training(self, model: "nn.Module", world: "World") -> Scores:
        wanted = self.recipe.evaluate.train_samples
        part = order.fixed_part(self.num_train, self.num_train_scored if wanted is None else wanted)
        numbers = pick(self.split_numbers(TRAIN), np.asarray(part))
        batches = ScoreBatches(self, samples_of(numbers, TRAIN), world, False)
        return self.score_batches(model, batches)

    def score_batches(self, model: "nn.Module", batches: ScoreBatches) -> Scores:
        import torch  # noqa: PLC0415  (a task's class is known without it)

        model.eval()
        with torch.inference_mode():
            scores = self.evaluate(model, batches)
        model.train()
        return batches.combine(scores)


def pick_all(numbers: range | Numbers) -> Numbers:
    return pick(numbers, np.arange(len(numbers)))


class WholeBatch:
    """A batch that one thread makes in one go."""

    num_samples = 1

    def __init__(self, task: SampleTask, samples: Samples, rng: np.random.Generator | None) -> None:
        self._task, self._samples, self._rng = task, samples, rng
        self.units_per_place = samples.num_units
        self._made: Any = None

    def fill(self, _place: int) -> None:
        self._made = self._task.batch(self._samples, self._rng)

    def filled(self) -> Any:
        return self._made
