"""Everything that changes while training, and its way into plain tensors and back.

What is *not* here is a function of what is: the learning rate follows from the step, sample order
and all random numbers from the seed and the position.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paceline.machine.arithmetic import Arithmetic
from paceline.settings import Recipe
from paceline.train.optimizer import build_optimizer
from paceline.train.reduce import Exchange, Tensors, build_exchange
from paceline.train.reduce.own_state import with_prefix, without_prefix
from paceline.world import World

_EXCHANGE, _WEIGHTS, _OPTIMIZER, _SCALER = "exchange", "weights", "optimizer", "scaler"
"""How names begin in the file with a process's own state."""


@dataclass
class Progress:
    """The plain numbers of a run's position; stored as JSON."""

    step: int = 0
    position: int = 0
    """Micro-batches of the stream that have been trained on."""
    best_score: float | None = None
    best_step: int | None = None
    first_loss: float | None = None
    smooth_loss: float | None = None
    data_fingerprint: str = ""
    exchange: dict[str, Any] | None = None
    """The settings of `reduce` that were chosen, where the recipe leaves the choice to us."""


def copied(progress: Progress) -> Progress:
    """As it is now, whatever comes."""
    return replace(progress)


@dataclass
class TrainState:
    network: nn.Module
    exchange: Exchange
    """How it comes to the same weights in all processes."""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    average: "MovingAverage | None"
    progress: Progress = field(default_factory=Progress)

    @property
    def scored_network(self) -> nn.Module:
        """What evaluation looks at: the averaged weights where the recipe asks for them."""
        return self.average.module if self.average is not None else self.exchange.agreed


def build_state(
    recipe: Recipe, network: nn.Module, world: World, arithmetic: Arithmetic
) -> TrainState:
    average = None
    has_servers = recipe.strategy.has_servers  # which keep the average, and the chief the scale
    if recipe.optimizer.average and not has_servers:
        average = MovingAverage(
            network, multi_avg_fn=moving_average(recipe.optimizer.average), use_buffers=True
        )
    needs_scaler = arithmetic.needs_scaler and not has_servers
    if recipe.compile:
        network.compile()  # in place, so that the weights keep their names
    return TrainState(
        network=network,
        exchange=build_exchange(recipe, network, world),
        optimizer=build_optimizer(recipe.optimizer, network),
        scaler=torch.amp.GradScaler(world.device.type, enabled=needs_scaler),
        average=average,
    )


class MovingAverage(AveragedModel):
    """torch's, which sends its count of updates to the device in every step, and waits for that;
    a moving average has no use for it there."""

    def update_parameters(self, model: nn.Module) -> None:
        if self.n_averaged == 0:  # on the host
            super().update_parameters(model)
            return
        by_type: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for average, value in zip(_values(self.module), _values(model), strict=True):
            averages, values = by_type.setdefault(value.dtype, ([], []))
            averages.append(average)
            values.append(value)
        for averages, values in by_type.values():
            self.multi_avg_fn(averages, values, self.n_averaged)  # type: ignore[misc]
        self.n_averaged += 1


def _values(network: nn.Module) -> Iterator[torch.Tensor]:
    return (value.detach() for value in chain(network.parameters(), network.buffers()))


def moving_average(decay: float) -> Any:
    return get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]


def device_of(state: TrainState) -> torch.device:
    """Where its weights are."""
    return next(state.network.parameters()).device


def weight_tensors(network: nn.Module) -> Tensors:
    return {name: value.detach() for name, value in network.state_dict().items()}


def optimizer_tensors(state: TrainState) -> Tensors:
    """The optimizer's state under the names of the weights: independent of any ordering."""
    tensors: Tensors = {}
    for name, parameter in state.network.named_parameters():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                tensors[f"{name}.{key}"] = value.detach()
    return tensors


def load_optimizer_tensors(state: TrainState, tensors: Tensors) -> None:
    for name, parameter in state.network.named_parameters():
        own = {
            key.removeprefix(name + "."): value
            for key, value in tensors.items()
            if key.startswith(name + ".") and "." not in key.removeprefix(name + ".")
        }
        state.optimizer.state[parameter] = {
            key: _laid_out_like(parameter, value) for key, value in own.items()
        }


def _laid_out_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A copy beside its weight and in its memory format, which fast updates rely on. Adam's count
    of steps is beside it too: fused updates look for it there."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).detach().copy_(value)


def numbers_of(state: TrainState) -> dict[str, Any]:
    return {"progress": asdict(state.progress), "scaler": state.scaler.state_dict()}


def load_numbers(state: TrainState, numbers: dict[str, Any]) -> None:
    state.progress = Progress(**numbers["progress"])
    if numbers["scaler"]:
        state.scaler.load_state_dict(numbers["scaler"])


def own_tensors(state: TrainState) -> Tensors:
    """What other processes have otherwise. The first one's optimizer has a file of its own."""
    own = with_prefix(_EXCHANGE, state.exchange.own_tensors())
    if not state.exchange.is_synchronous:
        own |= with_prefix(_WEIGHTS, weight_tensors(state.network))
        own |= with_prefix(_SCALER, _scaler_tensors(state.scaler))
        if not state.exchange.world.is_first:
            own |= with_prefix(_OPTIMIZER, optimizer_tensors(state))
    return own


def load_own_tensors(state: TrainState, own: Tensors, shared: Tensors) -> None:
    """After what all processes have alike."""
    if not state.exchange.is_synchronous:
        state.network.load_state_dict(without_prefix(_WEIGHTS, own))
        if not state.exchange.world.is_first:
            load_optimizer_tensors(state, without_prefix(_OPTIMIZER, own))
        _load_scaler_tensors(state.scaler, without_prefix(_SCALER, own))
    state.exchange.load_own(without_prefix(_EXCHANGE, own), shared)


def _scaler_tensors(scaler: torch.amp.GradScaler) -> Tensors:
    numbers = scaler.state_dict()
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}


def _load_scaler_tensors(scaler: torch.amp.GradScaler, tensors: Tensors) -> None:
    if tensors:
        kinds = {name: type(value) for name, value in scaler.state_dict().items()}
        scaler.load_state_dict({name: kinds[name](t.item()) for name, t in tensors.items()})
