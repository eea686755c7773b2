"""What a pass of a recipe's network takes, counted before it runs: operations, memory, bytes."""

from dataclasses import dataclass

import torch

from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.tasks.memory import Memory, estimate_memory
from paceline.tasks.passes import Pass, one_pass
from paceline.tasks.sizes import Sizes, sizes_of
from paceline.train.measure.flops import count_flops


@dataclass(frozen=True)
class Work:
    unit: str
    units_per_micro_batch: float
    flops_per_unit: float
    num_parameters: int
    sizes: Sizes
    memory: Memory | None
    """Of one process; None where it cannot be estimated."""
    is_made_up: bool
    """Counted on a micro-batch that the task made up, because its data is not here."""


def count_work(recipe: Recipe) -> Work:
    found, flops = _count(recipe)
    sizes = sizes_of(recipe)
    if sizes is None:
        raise _needs_data(recipe)
    return Work(
        unit=found.unit,
        units_per_micro_batch=float(found.num_units),
        flops_per_unit=flops / found.num_units,
        num_parameters=sum(p.numel() for p in found.network.parameters() if p.requires_grad),
        sizes=sizes,
        memory=estimate_memory(recipe),
        is_made_up=found.is_made_up,
    )


def _count(recipe: Recipe) -> tuple[Pass, float]:
    """On the device without values; a task that reads values runs on the processor."""
    for device in (torch.device("meta"), torch.device("cpu")):
        try:
            found = one_pass(recipe, device)
        except (NotImplementedError, RuntimeError):
            continue
        if found is None:
            raise _needs_data(recipe)
        flops = count_flops(lambda loss=found.loss: torch.autograd.backward(loss()))  # type: ignore[misc]
        if flops:
            return found, float(flops)
    raise UserError(
        f"the operations of {recipe.workload} cannot be counted",
        "plan from a run: paceline train ... steps=20, then paceline plan --from RUN",
    )


def _needs_data(recipe: Recipe) -> UserError:
    return UserError(
        f"what a micro-batch of {recipe.workload} is, only its data tells, and {recipe.data} is "
        "not here",
        "prepare the data, or plan from a run: paceline plan --from RUN",
    )
