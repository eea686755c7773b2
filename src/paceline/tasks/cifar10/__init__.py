"""CIFAR-10: small pictures of ten classes. The task's front page: no torch, no pydantic."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from paceline.tasks.contract import MadeUp, TaskKind
from paceline.units import Scale

if TYPE_CHECKING:
    import torch
    from torch import nn

    from paceline.tasks.cifar10.settings import Cifar10Recipe
    from paceline.tasks.cifar10.task import Cifar10


class Cifar10Kind(TaskKind):
    score_scales: ClassVar = {"top1": Scale("top-1", "1, as %")}

    @property
    def recipe_class(self) -> "type[Cifar10Recipe]":
        from paceline.tasks.cifar10.settings import Cifar10Recipe

        return Cifar10Recipe

    def open(self, recipe: "Cifar10Recipe", device: "torch.device") -> "Cifar10":
        from paceline.tasks.cifar10.task import Cifar10

        return Cifar10(recipe, device)

    def build_network(self, recipe: "Cifar10Recipe") -> "nn.Module":
        from paceline.tasks.cifar10.network import build_network

        return build_network(recipe.model)

    def made_up_loss(
        self, recipe: "Cifar10Recipe", network: "nn.Module", device: "torch.device"
    ) -> MadeUp:
        from paceline.tasks.cifar10.task import FULL_SIZE
        from paceline.tasks.pictures import made_up_pictures

        sizes = recipe.augment.sizes
        num, side = recipe.batch.micro_size, sizes[-1][1] if sizes else FULL_SIZE
        return MadeUp(made_up_pictures(network, num, side, device), num, "image")

    def check_data(self, recipe: "Cifar10Recipe") -> None:
        from paceline.data.places import data_directory
        from paceline.tasks.cifar10.prepare import open_split

        open_split(data_directory(recipe.data), "train")

    def micro_batches_per_epoch(self, recipe: "Cifar10Recipe") -> float:
        from paceline.data.places import data_directory
        from paceline.tasks.cifar10.prepare import open_split

        splits = ["train"] if recipe.train_on == "train" else ["train", "validation"]
        directory = data_directory(recipe.data)
        num_train = sum(len(open_split(directory, split).labels) for split in splits)
        return num_train / recipe.batch.micro_size

    def add_data_options(self, data: ArgumentParser) -> None:
        """It has none of its own."""

    def prepare_data(self, arguments: Namespace, say: Callable[[str], None]) -> Path:
        from paceline.tasks.cifar10 import prepare

        directory = arguments.to or prepare.default_directory(arguments.source)
        return prepare.prepare(arguments.source, directory, say)


KIND = Cifar10Kind()
