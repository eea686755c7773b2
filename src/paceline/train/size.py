"""How big a recipe's model is, before anything runs. The network is built without memory."""

import torch

from paceline.recipe import STATES_PER_WEIGHT, Recipe
from paceline.tasks.networks import network_of
from paceline.units import format_bytes, format_count


def num_parameters(recipe: Recipe) -> int:
    with torch.device("meta"):
        network = network_of(recipe)
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def size_in_words(recipe: Recipe) -> str:
    count = num_parameters(recipe)
    states = STATES_PER_WEIGHT[recipe.optimizer.kind]
    states += 1 if recipe.optimizer.average else 0
    return (
        f"size: {format_count(count)} parameters ({count:,}), {format_bytes(4 * count)} of fp32 "
        f"gradients per step, about {format_bytes(4 * count * (1 + states))} per checkpoint"
    )
