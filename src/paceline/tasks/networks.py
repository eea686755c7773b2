"""From a recipe's model section to an untrained network: no data, no device, no seed."""

from typing import Protocol

from torch import nn

from paceline.models.sizes import TransformerShape, named_shape
from paceline.recipe import (
    Cifar10Model,
    Cifar10Recipe,
    ImagenetModel,
    ImagenetRecipe,
    NmtRecipe,
    Recipe,
)
from paceline.tasks.cifar10.fastnet import FastNet
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.tasks.imagenet.resnet import ImagenetResNet


def network_of(recipe: Recipe) -> nn.Module:
    if isinstance(recipe, Cifar10Recipe):
        return cifar10_network(recipe.model)
    if isinstance(recipe, ImagenetRecipe):
        return imagenet_network(recipe.model)
    if isinstance(recipe, NmtRecipe):
        from paceline.models.transformer import Transformer  # noqa: PLC0415

        return Transformer(nmt_shape(recipe))
    raise AssertionError(f"no network for {type(recipe).__name__}")


class SpecialIds(Protocol):
    """What a model must know of a vocabulary."""

    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...
    @property
    def eos_id(self) -> int: ...


def nmt_shape(recipe: NmtRecipe, vocabulary: SpecialIds | None = None) -> TransformerShape:
    settings = recipe.model
    ids = {}
    if vocabulary is not None:
        ids = {name: getattr(vocabulary, name) for name in ("pad_id", "bos_id", "eos_id")}
    return named_shape(
        settings.size,
        settings.vocab_size,
        norm=settings.norm,
        attention_dropout=settings.attention_dropout,
        relu_dropout=settings.relu_dropout,
        residual_dropout=settings.residual_dropout,
        label_smoothing=recipe.label_smoothing,
        **ids,
    )


def imagenet_network(settings: ImagenetModel) -> nn.Module:
    return ImagenetResNet(settings.depth, settings.num_classes, settings.width)


def cifar10_network(settings: Cifar10Model) -> nn.Module:
    defaults = [16, 32, 64] if settings.kind == "resnet" else [64, 128, 256]
    first, second, third = settings.widths or defaults
    if settings.kind == "resnet":
        return CifarResNet(settings.depth, (first, second, third))
    one, two, three = settings.depths or [2, 3, 3]
    return FastNet((first, second, third), (one, two, three))
