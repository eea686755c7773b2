"""One pass of a recipe's network over a micro-batch, wherever tensors are: to count its work and
its memory before anything runs.

With the recipe's data where it is here, else with its stand-in, else with a micro-batch that the
task makes up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from paceline.data.places import data_directory, stand_in_name
from paceline.data.readahead import fill_at_once
from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.task_finder import find_task
from paceline.tasks.batch_values import _changed, to_device
from paceline.tasks.samples import SampleTask

if TYPE_CHECKING:
    import torch
    from torch import nn

_NUM_LOOKED_AT: Final = 8
"""Micro-batches at the end of the run, of which the one with the most units counts."""


@dataclass(frozen=True)
class Pass:
    network: "nn.Module"
    loss: "Callable[[], torch.Tensor]"
    """Forward: the summed loss, with its graph."""
    num_units: int
    is_made_up: bool
    unit: str = "unit"


def one_pass(recipe: Recipe, device: "torch.device") -> Pass | None:
    """None where only data that is not here could tell what a micro-batch is."""
    usable = with_data_that_is_here(recipe)
    return _read(usable, device) if usable is not None else _made_up(recipe, device)


def with_data_that_is_here(recipe: Recipe) -> Recipe | None:
    kind = find_task(recipe.workload)
    for name in (recipe.data, stand_in_name(recipe.workload)):
        candidate = recipe.model_copy(update={"data": name})
        if not recipe.data or Path(data_directory(name)).is_dir():
            try:
                kind.check_data(candidate)
            except UserError:
                continue
            return candidate
    return None


def _read(recipe: Recipe, device: "torch.device") -> Pass:
    import torch  # noqa: PLC0415  (takes seconds)

    from paceline.tasks.network import build_network  # noqa: PLC0415  (imports torch)

    task = find_task(recipe.workload).open(recipe, device)
    if not isinstance(task, SampleTask):
        raise NotImplementedError("its micro-batches are its own")
    with torch.device(device):
        network = build_network(task)
    index = heaviest_micro_batch(task)
    batch = moved(fill_at_once(task.begin_batch(index)), device)
    return Pass(network, lambda: task.loss(network, batch), task.num_units(index), False, task.unit)


def _made_up(recipe: Recipe, device: "torch.device") -> Pass | None:
    import torch  # noqa: PLC0415

    kind = find_task(recipe.workload)
    try:
        with torch.device(device):
            network = kind.build_network(recipe)
    except UserError:  # an own task's network may follow from data that is not here
        return None
    first = kind.made_up_loss(recipe, network, device)
    if first is None:
        return None

    def loss() -> "torch.Tensor":
        found = kind.made_up_loss(recipe, network, device)
        assert found is not None  # noqa: S101  (it was there a moment ago)
        return found.loss

    return Pass(network, loss, first.num_units, True, first.unit)


def heaviest_micro_batch(task: SampleTask) -> int:
    """Of the last ones: some recipes begin with smaller pictures, and sentences differ."""
    end = task.recipe.steps * task.micro_batches_per_step(1)
    return max(range(max(end - _NUM_LOOKED_AT, 0), end), key=task.num_units)


def moved(batch: Any, device: "torch.device") -> Any:
    """Not by way of pinned memory, which only a real device has."""
    import torch  # noqa: PLC0415

    on_cpu = to_device(batch, torch.device("cpu"))
    return on_cpu if device.type == "cpu" else _changed(on_cpu, lambda part: _part_on(part, device))


def _part_on(part: Any, device: "torch.device") -> Any:
    return part.to(device) if callable(getattr(part, "to", None)) else part
