"""A task's network, fresh and ready to be trained or loaded: same seed, device and norms."""

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from paceline.errors import UserError
from paceline.models.norm import combine_norms
from paceline.tasks.contract import Task


def build_network(task: Task) -> nn.Module:
    """The same in every process, and on its device."""
    torch.manual_seed(task.recipe.seed)
    np.random.seed(task.recipe.seed % 2**32)  # a user's code may draw from it
    random.seed(task.recipe.seed)
    network = task.build_model()
    name = f"{type(task).__name__}.build_model"
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} returned {type(network).__name__}", "return an nn.Module")
    for problem, fix in _problems(network):
        raise UserError(f"{name}: {problem}", fix)
    combine_norms(network)
    try:
        return network.to(task.device)
    except NotImplementedError as error:  # weights without memory ("meta")
        raise UserError(
            f"{name}: the network cannot be moved to {task.device}: {error}",
            "build it with plain torch modules; it is moved to the device afterwards",
        ) from error


def _problems(network: nn.Module) -> Iterator[tuple[str, str]]:
    for name, module in network.named_modules():
        for attribute, value in vars(module).items():
            if attribute.startswith("_") or not isinstance(value, list | tuple | dict):
                continue
            parts = value.values() if isinstance(value, dict) else value
            if any(isinstance(part, nn.Module | nn.Parameter) for part in parts):
                place = f"{name}.{attribute}" if name else attribute
                yield (
                    f"'{place}' is a plain {type(value).__name__} of modules, which torch does not "
                    "see: they would be neither trained nor moved to the device",
                    "use nn.ModuleList, nn.ModuleDict or nn.ParameterList",
                )
    for name, weight in network.named_parameters():
        if isinstance(weight, nn.parameter.UninitializedParameter):
            yield f"'{name}' has no shape yet (a lazy module)", "give its sizes"
