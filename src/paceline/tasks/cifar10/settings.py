"""What can be set for CIFAR-10, beside what every recipe has."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from paceline import config
from paceline.config import Section, setting
from paceline.settings import BatchSettings, Recipe, Share


class Cifar10Model(Section):
    kind: Literal["resnet", "fast"] = setting("resnet", "ResNet-6n+2 or the fast modern net")
    depth: int = setting(20, "resnet: number of layers, 6n+2 (20, 32, 44, 56, 110)", ge=8)
    widths: list[PositiveInt] = setting(
        [], "channels of the three stages; empty takes the kind's own"
    )
    depths: list[PositiveInt] = setting(
        [], "fast: convolutions of the three stages; empty takes [2, 3, 3]"
    )

    @field_validator("depth")
    @classmethod
    def _is_6n_plus_2(cls, depth: int, info: ValidationInfo) -> int:
        if info.data.get("kind") == "resnet" and (depth - 2) % 6:
            config.refuse_together("must be 6n+2: 20, 32, 44, 56, 110, ...", "kind", "depth")
        return depth

    @field_validator("widths", "depths")
    @classmethod
    def _three_stages(cls, stages: list[int]) -> list[int]:
        if stages and len(stages) != 3:
            raise ValueError("must name three stages, a number for each")
        return stages

    @field_validator("depths")
    @classmethod
    def _is_not_ignored(cls, depths: list[int], info: ValidationInfo) -> list[int]:
        if depths and info.data.get("kind") == "resnet":
            config.refuse_together("is for kind fast; a resnet takes depth", "kind", "depths")
        return depths


SmallSide = Annotated[int, Field(ge=16, le=32)]


class AugmentSettings(Section):
    pad: int = setting(
        4, "pixels of reflection padding before a random crop of the full size", ge=0
    )
    flip: Literal["none", "random", "alternating"] = setting(
        "random", "mirror pictures at random, or every other epoch"
    )
    sizes: list[tuple[Share, SmallSide]] = setting(
        [], "train on smaller pictures first: pairs of (share of the run from which on, pixels)"
    )
    cutout: int = setting(0, "side of a square that is blanked out; 0 is off", ge=0)


class Cifar10Recipe(Recipe):
    """Image classification on CIFAR-10 or its stand-in."""

    data: str = setting(
        "cifar10", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: Cifar10Model = setting(Cifar10Model(), "the network", fixed=True)
    batch: BatchSettings = setting(..., "how many pictures make a step")
    augment: AugmentSettings = setting(AugmentSettings(), "changes to training pictures")
    label_smoothing: float = setting(
        0.0, "share of the target given to all classes alike", ge=0, lt=1
    )
    train_on: Literal["train", "all"] = setting(
        "train",
        "all: the validation pictures too, for a last run whose settings are settled",
        fixed=True,
    )
    mirror: bool = setting(False, "evaluate each picture and its mirror image, and average")
    shift: int = setting(
        0,
        "evaluate each picture also moved this many pixels up left and down right, and average",
        ge=0,
        le=8,
    )

    @field_validator("train_on")
    @classmethod
    def _nothing_left_to_validate_on(cls, train_on: str, info: ValidationInfo) -> str:
        evaluate = info.data.get("evaluate")
        if train_on == "all" and evaluate is not None and evaluate.every_steps is not None:
            raise ValueError(
                "all leaves nothing to validate on: set evaluate.every_steps=null as well"
            )
        return train_on
