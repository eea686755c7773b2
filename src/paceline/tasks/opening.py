"""The way from a recipe to its task."""

import torch

from paceline.recipe import Cifar10Recipe, ImagenetRecipe, NmtRecipe, Recipe
from paceline.tasks.contract import Workload


def open_workload(recipe: Recipe, device: torch.device) -> Workload:
    """The recipe's task with its data open; each task's libraries load only when it is used."""
    if isinstance(recipe, Cifar10Recipe):
        from paceline.tasks.cifar10.task import Cifar10  # noqa: PLC0415

        return Cifar10(recipe, device)
    if isinstance(recipe, ImagenetRecipe):
        from paceline.tasks.imagenet.task import Imagenet  # noqa: PLC0415

        return Imagenet(recipe, device)
    if isinstance(recipe, NmtRecipe):
        from paceline.tasks.nmt.task import Nmt  # noqa: PLC0415

        return Nmt(recipe, device)
    raise AssertionError(f"no workload for {type(recipe).__name__}")
