"""The whole contract of a task.

A workload turns a recipe and prepared data into a model, micro-batches and scores. It never learns
how many processes there are: training asks it for micro-batches by their number in one endless
stream, and adds up what it returns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from paceline.data.readahead import Filling
from paceline.world import World


@dataclass(frozen=True)
class Scores:
    """What evaluation gives: values by name, and the signature that says how they were made."""

    values: dict[str, float]
    signature: str
    samples: tuple[str, ...] = ()
    """A few results to look at, e.g. translations."""


class Workload(Protocol):
    unit: str
    """What throughput counts, e.g. 'image'."""

    best_by: str
    """The score by which the best checkpoint is chosen; higher is better."""

    data_fingerprint: str
    """Changes when the data does; a run goes on only with the data it began with."""

    @property
    def device(self) -> torch.device: ...

    def build_model(self) -> nn.Module:
        """A fresh model from the recipe's seed, the same in every process."""

    def keep(self, directory: Path) -> None:
        """Copy into the run what using its weights later takes besides them."""

    def micro_batches_per_step(self, world_size: int) -> int:
        """How many micro-batches of the stream make one optimizer step."""

    def global_batch(self, world_size: int) -> int:
        """The size of a step's batch in the recipe's own measure, for scaling the rate."""

    def num_units(self, index: int) -> int:
        """Units in a micro-batch, known without reading it."""

    def epochs_at(self, position: int) -> float:
        """How often the data has been seen after this many micro-batches."""

    def micro_batch(self, index: int) -> Any:
        """The index-th micro-batch of the stream, ready for `loss`."""

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The *sum* of the losses of a micro-batch's units, with its graph."""

    def evaluate(self, model: nn.Module, split: str, world: World, final: bool = False) -> Scores:
        """Scores over a split: every sample once, whatever the world. `final` may take longer.

        One of them is 'loss', without label smoothing.
        """

    def evaluate_training(self, model: nn.Module, world: World) -> Scores:
        """The measure of `evaluate` on a fixed part of the training samples, as they are (not
        augmented), `recipe.evaluate.train_samples` of them: compared with validation it shows
        overfitting. Costly scores (decoding) may be left out; 'loss' may not."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A workload whose micro-batches take reading and decoding: threads do it ahead of the loop.

    For every index `on_device(fill_at_once(begin_batch(index)))` is `micro_batch(index)`.
    """

    @property
    def asked_workers(self) -> int | None:
        """How many threads the recipe asks for; None where the number is to be found."""

    def begin_batch(self, index: int) -> Filling:
        """A micro-batch to be filled."""

    @property
    def largest_batch_bytes(self) -> int:
        """Memory that the largest micro-batch of the run takes."""

    def on_device(self, batch: Any) -> Any:
        """A filled micro-batch, ready for `loss`."""


@runtime_checkable
class DescribesData(Protocol):
    """A workload that knows of its data what the card does not say."""

    def data_facts(self) -> dict[str, dict[str, Any]]:
        """Facts by name, recorded with the beginning of every attempt, e.g. `left_out`; one that
        has a `text` is also shown when training starts."""
