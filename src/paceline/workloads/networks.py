"""From a recipe's model section to an untrained network: no data, no device, no seed."""

from torch import nn

from paceline.models.fastnet import FastNet
from paceline.models.resnet import CifarResNet
from paceline.recipe import Cifar10Model, Cifar10Recipe, Recipe


def network_of(recipe: Recipe) -> nn.Module:
    if isinstance(recipe, Cifar10Recipe):
        return cifar10_network(recipe.model)
    raise AssertionError(f"no network for {type(recipe).__name__}")


def cifar10_network(settings: Cifar10Model) -> nn.Module:
    defaults = [16, 32, 64] if settings.kind == "resnet" else [64, 128, 256]
    first, second, third = settings.widths or defaults
    if settings.kind == "resnet":
        return CifarResNet(settings.depth, (first, second, third))
    return FastNet((first, second, third))
