"""What of a run's state is at the chief: buffers, numbers, and the files of a checkpoint.

Weights and the optimizer's state live on servers. Running averages of batch norm are the chief's,
because it alone evaluates. In a checkpoint all of it is together, in the form that every run has,
so a run may go on with another number of servers.
"""

import copy
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from paceline.models.norm import StepStatistics, averaging_layers
from paceline.record import checkpoints as stored
from paceline.settings import OptimizerSettings
from paceline.strategies.chief.server_lines import Gathered
from paceline.strategies.flat_rows import Tensors
from paceline.train.save import Snapshot
from paceline.train.state import MovingAverage, Progress, moving_average, weight_tensors

_COUNT = "step"


class Buffers:
    """Everything of a network that is stored and not trained by servers, beside that network: it
    computes and evaluates with other values than the newest."""

    def __init__(self, network: nn.Module, settings: OptimizerSettings) -> None:
        self._network = _without_weights(network)
        self.aliases = _names_of_trained(network)
        self._statistics = StepStatistics(self._network)
        self._average: MovingAverage | None = None
        if settings.average:
            averaging = moving_average(settings.average)
            self._average = MovingAverage(self._network, multi_avg_fn=averaging, use_buffers=True)
        self.num_statistics = sum(
            2 * layer.num_features for layer in averaging_layers(self._network)
        )

    def absorb(self, statistics: torch.Tensor, num_micro_batches: int) -> None:
        self._statistics.absorb(statistics / num_micro_batches)
        if self._average is not None:
            self._average.update_parameters(self._network)

    def tensors(self) -> Tensors:
        return self._copies(self._network)

    def average_tensors(self) -> Tensors:
        return self._copies(self._average.module) if self._average is not None else {}

    def _copies(self, network: nn.Module) -> Tensors:
        return {
            name: value.clone()
            for name, value in weight_tensors(network).items()
            if name not in self.aliases
        }

    def load(self, tensors: Tensors, average: Tensors | None) -> None:
        self._network.load_state_dict(self._own(tensors), strict=False)
        if self._average is not None and average is not None:
            self._average.module.load_state_dict(self._own(average), strict=False)
            self._average.n_averaged.fill_(1)  # a fresh one would begin with a copy

    def _own(self, tensors: Tensors) -> Tensors:
        return {name: value for name, value in tensors.items() if name not in self.aliases}


def _names_of_trained(network: nn.Module) -> dict[str, str]:
    """All names under which trained weights are stored, and what servers call them: tied weights
    have several."""
    names = {id(p): name for name, p in network.named_parameters() if p.requires_grad}
    values = network.state_dict(keep_vars=True)
    return {name: names[id(value)] for name, value in values.items() if id(value) in names}


def _without_weights(network: nn.Module) -> nn.Module:
    """A copy with the buffers and frozen weights, on the processor; what servers train is empty."""
    trained = {id(p): nn.Parameter(p.new_empty(0)) for p in network.parameters() if p.requires_grad}
    return copy.deepcopy(network, trained).cpu()


@dataclass(frozen=True)
class Moment:
    """A run at one step, to be evaluated and saved while it goes on."""

    progress: Progress
    aliases: dict[str, str]
    buffers: Tensors
    average_buffers: Tensors
    scaler: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)

    def weights(self, gathered: Gathered) -> Tensors:
        return {**self._named(gathered.weights), **self.buffers}

    def _named(self, trained: Tensors) -> Tensors:
        """Under every name; a file takes no tensor twice."""
        return {
            alias: trained[name] if alias == name else trained[name].clone()
            for alias, name in self.aliases.items()
        }

    def scored(self, gathered: Gathered) -> Tensors:
        """What evaluation looks at: the averaged weights where the recipe asks for them."""
        average = self.average(gathered)
        return self.weights(gathered) if average is None else average

    def average(self, gathered: Gathered) -> Tensors | None:
        if gathered.average is None:
            return None
        return {**self._named(gathered.average), **self.average_buffers}

    def snapshot(self, gathered: Gathered) -> Snapshot:
        files = {
            stored.WEIGHTS: self.weights(gathered),
            stored.OPTIMIZER: _optimizer_file(gathered),
        }
        average = self.average(gathered)
        if average is not None:
            files[stored.AVERAGE] = average
        numbers = {
            "progress": asdict(self.progress),
            "scaler": self.scaler,
            "positions": self.positions,
        }
        return Snapshot(self.progress.step, self.progress.best_step, files, numbers)


def _optimizer_file(gathered: Gathered) -> Tensors:
    found = {
        f"{name}.{key}": value
        for key, tensors in gathered.states.items()
        for name, value in tensors.items()
    }
    if gathered.num_updates is not None:
        count = torch.tensor(gathered.num_updates)
        found |= {f"{name}.{_COUNT}": count.clone() for name in gathered.weights}
    return found


@dataclass(frozen=True)
class Restored:
    weights: Tensors
    """Of the whole network."""
    gathered: Gathered
    average: Tensors | None
    numbers: dict[str, Any]

    @property
    def progress(self) -> Progress:
        return Progress(**self.numbers["progress"])


def read_checkpoint(checkpoint: Path, trained: list[str]) -> Restored:
    """A checkpoint of any run of this recipe, as servers and chief take it."""
    weights = load_file(checkpoint / stored.WEIGHTS)
    average_file = checkpoint / stored.AVERAGE
    average = load_file(average_file) if average_file.is_file() else None
    states, num_updates = _states_in(load_file(checkpoint / stored.OPTIMIZER), trained)
    gathered = Gathered(
        weights={name: weights[name] for name in trained},
        states=states,
        average={name: average[name] for name in trained} if average is not None else None,
        num_updates=num_updates,
    )
    numbers = json.loads((checkpoint / stored.STATE).read_text(encoding="utf-8"))
    return Restored(weights, gathered, average, numbers)


def _states_in(tensors: Tensors, trained: list[str]) -> tuple[dict[str, Tensors], float | None]:
    """By the name of the state; those that only some weights have begin anew."""
    keys = {key.rpartition(".")[2] for key in tensors}
    count = tensors.get(f"{trained[0]}.{_COUNT}")
    states = {
        key: {name: tensors[f"{name}.{key}"] for name in trained}
        for key in sorted(keys - {_COUNT})
        if all(f"{name}.{key}" in tensors for name in trained)
    }
    return states, None if count is None else float(count)


def fresh(network: nn.Module) -> Gathered:
    """Of a network that nobody has trained yet."""
    named = {n: p.detach() for n, p in network.named_parameters() if p.requires_grad}
    return Gathered(named, {}, None, None)
