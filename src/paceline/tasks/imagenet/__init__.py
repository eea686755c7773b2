"""ImageNet, or any photographs in class folders. The task's front page: no torch, no pydantic."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from paceline.arguments import Verbs, count
from paceline.tasks.contract import MadeUp, TaskKind
from paceline.units import Scale

if TYPE_CHECKING:
    import torch
    from torch import nn

    from paceline.tasks.imagenet.settings import ImagenetRecipe
    from paceline.tasks.imagenet.task import Imagenet


class ImagenetKind(TaskKind):
    score_scales: ClassVar = {
        "top1": Scale("top-1", "1, as %"),
        "top5": Scale("top-5", "1, as %"),
    }

    @property
    def recipe_class(self) -> "type[ImagenetRecipe]":
        from paceline.tasks.imagenet.settings import ImagenetRecipe

        return ImagenetRecipe

    def open(self, recipe: "ImagenetRecipe", device: "torch.device") -> "Imagenet":
        from paceline.tasks.imagenet.task import Imagenet

        return Imagenet(recipe, device)

    def build_network(self, recipe: "ImagenetRecipe") -> "nn.Module":
        from paceline.tasks.imagenet.resnet import ImagenetResNet

        model = recipe.model
        return ImagenetResNet(model.depth, model.num_classes, model.width)

    def made_up_loss(
        self, recipe: "ImagenetRecipe", network: "nn.Module", device: "torch.device"
    ) -> MadeUp:
        from paceline.tasks.pictures import made_up_pictures

        sizes = recipe.augment.sizes
        num, side = recipe.batch.micro_size, sizes[-1][1] if sizes else recipe.augment.size
        return MadeUp(made_up_pictures(network, num, side, device), num, "image")

    def check_data(self, recipe: "ImagenetRecipe") -> None:
        # Importing the first also tells when a library for pictures is missing.
        from paceline.data.places import data_directory
        from paceline.tasks.imagenet import shards
        from paceline.tasks.imagenet.preparation import pictures  # noqa: F401

        shards.open_pictures(data_directory(recipe.data), "train")
        shards.require_classes(data_directory(recipe.data), recipe.model.num_classes)

    def micro_batches_per_epoch(self, recipe: "ImagenetRecipe") -> float:
        from paceline.data.places import data_directory
        from paceline.tasks.imagenet import shards

        pictures = shards.open_pictures(data_directory(recipe.data), "train")
        return len(pictures) / recipe.batch.micro_size

    def add_data_options(self, data: ArgumentParser) -> None:
        data.add_argument(
            "--layout", choices=["shards", "folders"], help="as large files, or train/WNID/*.JPEG"
        )
        data.add_argument("--max-side", type=count, metavar="PIXELS", help="shrink larger pictures")
        data.add_argument(
            "--pictures", type=count, default=60, help="stand-in: training pictures of a class"
        )
        data.add_argument(
            "--verify", action="store_true", help="read what is there already, and compare hashes"
        )

    def prepare_data(self, arguments: Namespace, say: Callable[[str], None]) -> Path:
        from paceline.tasks.imagenet.preparation import prepare

        options = prepare.Options(
            layout=arguments.layout,
            max_side=arguments.max_side,
            num_pictures=arguments.pictures,
            verify=arguments.verify,
        )
        directory = arguments.to or prepare.default_directory(arguments.source)
        return prepare.prepare(arguments.source, directory, options, say)

    def add_verbs(self, verbs: Verbs) -> None:
        from paceline.tasks.imagenet.verbs import add_classify

        add_classify(verbs)


KIND = ImagenetKind()
