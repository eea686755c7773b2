"""From a recipe's model section to an untrained network."""

from torch import nn

from paceline.tasks.cifar10.fastnet import FastNet
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.tasks.cifar10.settings import Cifar10Model


def build_network(settings: Cifar10Model) -> nn.Module:
    defaults = [16, 32, 64] if settings.kind == "resnet" else [64, 128, 256]
    first, second, third = settings.widths or defaults
    if settings.kind == "resnet":
        return CifarResNet(settings.depth, (first, second, third))
    one, two, three = settings.depths or [2, 3, 3]
    return FastNet((first, second, third), (one, two, three))
