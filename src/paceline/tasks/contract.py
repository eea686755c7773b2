"""The whole contract of a task, in its two halves. A task of your own is a `SampleTask`
(`samples.py`), which leaves five of these members to write; the tasks that are shipped are, too.

`TaskKind` is a task before anything is opened: its settings, its data on disk, its verbs. The
command line, launchers and the doctor ask it, and it imports nothing heavy until it must.

`Task` is a task at work in one process: a recipe and prepared data become a model, micro-batches
and scores. It never learns how many processes there are: training asks it for micro-batches by
their number in one endless stream, and adds up what it returns.
"""

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, SupportsFloat, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import nn

    from paceline.arguments import Verbs
    from paceline.data.readahead import Filling
    from paceline.settings import Recipe
    from paceline.units import Scale
    from paceline.world import World


@dataclass(frozen=True)
class Scores:
    """What evaluation gives: values by name, and the signature that says how they were made.

    From `of_sums` they are those of one process's share, and still to be added up over the world.
    """

    values: dict[str, float]
    signature: str = ""
    samples: tuple[str, ...] = ()
    """A few results to look at, e.g. translations."""
    num: float | None = None
    """The values are sums over so many samples (or tokens) of this process's share."""

    @classmethod
    def of_sums(cls, num: SupportsFloat, **sums: SupportsFloat) -> "Scores":
        """Sums over this process's share of the samples, and of how many: the scores become the
        means over all processes. `Scores.of_sums(num, top1=num_right, loss=loss_sum)`"""
        return cls({name: float(value) for name, value in sums.items()}, num=float(num))


class TaskKind(ABC):
    """What can be asked of a task without its data, its libraries or a device."""

    score_scales: ClassVar["Mapping[str, Scale]"] = {}
    """How its scores are written, by their names in `Scores.values`; others are plain numbers."""

    @property
    @abstractmethod
    def recipe_class(self) -> "type[Recipe]":
        """Its settings: what every recipe has, and what this task adds."""

    @abstractmethod
    def open(self, recipe: Any, device: "torch.device") -> "Task":
        """The task at work, with its data open."""

    @abstractmethod
    def build_network(self, recipe: Any) -> "nn.Module":
        """An untrained network from the settings alone: no data, no device, no seed."""

    @abstractmethod
    def check_data(self, recipe: Any) -> None:
        """Raise unless the recipe's data is there and is what this task reads."""

    @abstractmethod
    def micro_batches_per_epoch(self, recipe: Any) -> float:
        """How many micro-batches see all training data once; looks at the prepared data."""

    def num_parameters(self, _recipe: Any) -> int | None:
        """How many weights the network has, where that is known without building it."""
        return None

    @abstractmethod
    def add_data_options(self, data: ArgumentParser) -> None:
        """Options of `paceline data NAME` that only this task has."""

    @abstractmethod
    def prepare_data(self, arguments: Namespace, say: Callable[[str], None]) -> Path:
        """Do what `paceline data NAME` asks; the directory that it is in then."""

    def settings_for(self, _recipe: Any, _data: Path) -> list[str]:
        """What must be set beside `data` for this recipe to train on it."""
        return []

    def add_verbs(self, _verbs: "Verbs") -> None:
        """Verbs of the command line that use a model of this task."""
        return

    def made_up_loss(
        self, _recipe: Any, _network: "nn.Module", _device: "torch.device"
    ) -> "MadeUp | None":
        """Of a micro-batch of the usual shape that was never read, so that work and memory are
        known before there is data; None where only the data can tell the shape."""
        return None


@dataclass(frozen=True)
class MadeUp:
    """A micro-batch that stands for the usual one."""

    loss: "torch.Tensor"
    """Summed, with its graph."""
    num_units: int
    unit: str


class Task(ABC):
    """What training asks of a task. `SampleTask` answers most of it."""

    unit: ClassVar[str]
    """What throughput counts, e.g. 'image'."""
    best_by: ClassVar[str]
    """The score by which the best checkpoint is chosen; higher is better."""

    recipe: "Recipe"
    device: "torch.device"
    on_progress: "Callable[[int, int], None] | None" = None
    """Set by whoever shows how far an evaluation is: samples done, samples in all."""
    data_fingerprint: str = ""
    """Changes when the data does; a run goes on only with the data it began with."""

    def __init__(self, recipe: "Recipe", device: "torch.device") -> None:
        self.recipe, self.device = recipe, device

    @abstractmethod
    def build_model(self) -> "nn.Module":
        """A fresh network; torch's seed is set before, so that every process builds the same."""

    @abstractmethod
    def num_units(self, index: int) -> int:
        """Units in a micro-batch, known without reading it."""

    @abstractmethod
    def epochs_at(self, position: int) -> float:
        """How often the data has been seen after this many micro-batches."""

    @abstractmethod
    def micro_batch(self, index: int) -> Any:
        """The index-th micro-batch of the stream, ready for `loss`."""

    @abstractmethod
    def loss(self, model: "nn.Module", batch: Any) -> "torch.Tensor":
        """The *sum* of the losses of a micro-batch's units, with its graph."""

    @abstractmethod
    def score(self, model: "nn.Module", split: str, world: "World", final: bool = False) -> Scores:
        """Scores over a split: every sample once, whatever the world. `final` may take longer.

        One of them is 'loss', without label smoothing.
        """

    @abstractmethod
    def score_training(self, model: "nn.Module", world: "World") -> Scores:
        """The measure of `score` on a fixed part of the training samples, as they are (not
        augmented), `recipe.evaluate.train_samples` of them: compared with validation it shows
        overfitting. Costly scores (decoding) may be left out; 'loss' may not."""

    def tell_progress(self, num_done: int, num_samples: int) -> None:
        """An evaluation that takes long calls this now and then."""
        if self.on_progress is not None:
            self.on_progress(num_done, num_samples)

    def micro_batches_per_step(self, world_size: int) -> int:
        """How many micro-batches of the stream make one optimizer step."""
        return self.recipe.num_micro_batches(world_size)

    def global_batch(self, world_size: int) -> int:
        """The size of a step's batch in the recipe's own measure, for scaling the rate."""
        return self.recipe.whole_batch(world_size)

    def keep(self, _directory: Path) -> None:
        """Copy into the run what using its weights later takes besides them."""
        return

    def data_facts(self) -> dict[str, dict[str, Any]]:
        """What the data's card does not say, by name, recorded with the beginning of every attempt,
        e.g. `left_out`; a fact with a `text` is also shown when training starts."""
        return {}

    @property
    def start_from(self) -> str | None:
        """Fine-tuning: the run, checkpoint or file whose weights a new run begins with."""
        return None

    @property
    def last_layer(self) -> str:
        """What the names of the last layer's weights begin with; fine-tuning may start it anew."""
        return ""


@runtime_checkable
class ReadsAhead(Protocol):
    """A task whose micro-batches take reading and decoding: threads do it ahead of the loop.

    For every index `on_device(fill_at_once(begin_batch(index)))` is `micro_batch(index)`.
    """

    @property
    def reads_ahead(self) -> bool:
        """Whether it does; a task that could may have so little to read that it does not."""

    @property
    def asked_workers(self) -> int | None:
        """How many threads the recipe asks for; None where the number is to be found."""

    @property
    def input_remedy(self) -> str:
        """What makes reading cheaper, as part of a sentence for the user."""

    def begin_batch(self, index: int) -> "Filling":
        """A micro-batch to be filled."""

    @property
    def largest_batch_bytes(self) -> int:
        """Memory that the largest micro-batch of the run takes."""

    def on_device(self, batch: Any) -> Any:
        """A filled micro-batch, ready for `loss`."""
