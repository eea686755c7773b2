"""How big a recipe's model is, before anything runs. A network is built without memory."""

from dataclasses import dataclass

from paceline.errors import UserError
from paceline.settings import STATES_PER_WEIGHT, Recipe
from paceline.task_finder import find_task
from paceline.units import format_bytes, format_count

_BYTES_PER_FP32 = 4
_BEING_WRITTEN_AND_BEST = 2


@dataclass(frozen=True)
class Sizes:
    gradient_bytes: float
    checkpoint_bytes: float
    """One of them."""
    kept_bytes: float
    """All checkpoints that are kept at one time, with the best and the one being written."""


def num_parameters(recipe: Recipe) -> int:
    """From the settings where the task can tell; else by building the network, with torch."""
    kind = find_task(recipe.workload)
    known = kind.num_parameters(recipe)
    if known is not None:
        return known
    import torch  # noqa: PLC0415  (takes seconds)

    with torch.device("meta"):
        network = kind.build_network(recipe)
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def sizes_of(recipe: Recipe, may_import_torch: bool = True) -> Sizes | None:
    """None where only torch knows and may not be asked, or where only the data knows."""
    if not may_import_torch and find_task(recipe.workload).num_parameters(recipe) is None:
        return None
    try:
        gradient_bytes = float(_BYTES_PER_FP32 * num_parameters(recipe))
    except UserError:  # an own task's network may follow from data that is not here
        return None
    states = STATES_PER_WEIGHT[recipe.optimizer.kind]
    copies = 1 + states + (recipe.optimizer.average > 0) + recipe.reduce.stored_copies(states)
    num_kept = recipe.checkpoint.keep_last + _BEING_WRITTEN_AND_BEST
    checkpoint_bytes = gradient_bytes * copies
    return Sizes(gradient_bytes, checkpoint_bytes, checkpoint_bytes * num_kept)


def size_in_words(recipe: Recipe) -> str:
    sizes = sizes_of(recipe)
    if sizes is None:
        return "size: not known here, because the task's data is not here"
    count = round(sizes.gradient_bytes / _BYTES_PER_FP32)
    return (
        f"size: {format_count(count)} parameters ({count:,}), "
        f"{format_bytes(sizes.gradient_bytes)} of fp32 gradients per step, "
        f"about {format_bytes(sizes.checkpoint_bytes)} per checkpoint"
    )
