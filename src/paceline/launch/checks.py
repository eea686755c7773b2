"""What is checked before any process starts, so that a mistake costs no time."""

from paceline.data.places import data_directory
from paceline.recipe import Cifar10Recipe, ImagenetRecipe, NmtRecipe, Recipe


def check_data(recipe: Recipe) -> None:
    """Raise unless the recipe's data is there and is what the workload reads."""
    if isinstance(recipe, Cifar10Recipe):
        from paceline.tasks.cifar10 import prepare as cifar10  # noqa: PLC0415

        cifar10.open_split(data_directory(recipe.data), "train")
    if isinstance(recipe, ImagenetRecipe):
        # Importing the first also tells when a library for pictures is missing.
        from paceline.tasks.imagenet import shards  # noqa: PLC0415
        from paceline.tasks.imagenet.preparation import pictures as imagenet_pictures  # noqa: F401, PLC0415

        shards.open_pictures(data_directory(recipe.data), "train")
        shards.require_classes(data_directory(recipe.data), recipe.model.num_classes)
    if isinstance(recipe, NmtRecipe):
        from paceline.tasks.nmt.preparation import prepare as nmt  # noqa: PLC0415

        nmt.open_split(data_directory(recipe.data), "train")
