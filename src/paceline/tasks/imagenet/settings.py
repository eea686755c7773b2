"""What can be set for photographs in classes, beside what every recipe has."""

from typing import Annotated, Literal

from pydantic import Field

from paceline.config import Section, setting
from paceline.settings import BatchSettings, EvaluateSettings, InputSettings, Recipe, Share


class ImagenetModel(Section):
    depth: Literal[18, 34, 50] = setting(50, "ResNet-18, -34 or -50 (v1.5)")
    num_classes: int = setting(1000, "classes of the prepared data", gt=1)
    width: int = setting(64, "channels of the first stage; 64 is the published network", gt=0)
    start_from: str | None = setting(
        None,
        "fine-tuning: begin with the weights of a run, a checkpoint or a .safetensors file; "
        "the last layer starts anew where the number of classes differs",
        path=True,
    )


PhotoSide = Annotated[int, Field(ge=32, le=1024)]


class PhotoAugmentSettings(Section):
    size: PhotoSide = setting(224, "side of a training picture in pixels")
    sizes: list[tuple[Share, PhotoSide]] = setting(
        [], "train on smaller pictures first: pairs of (share of the run from which on, pixels)"
    )
    smallest_share: float = setting(
        0.08, "random-resized crop: smallest share of a picture's area", gt=0, le=1
    )
    flip: bool = setting(True, "mirror every other picture, at random")


class PhotoEvaluateSettings(EvaluateSettings):
    batch: int = setting(100, "samples per forward pass in evaluation", gt=0)
    size: PhotoSide | None = setting(
        None, "side of the central square in pixels; null takes augment.size"
    )
    share: float = setting(
        0.875, "how much of the short side the central square takes (224 of 256)", gt=0, le=1
    )


class ImagenetRecipe(Recipe):
    """Image classification on ILSVRC 2012, its stand-in, or any tree of class folders."""

    data: str = setting(
        "imagenet", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: ImagenetModel = setting(ImagenetModel(), "the network", fixed=True)
    batch: BatchSettings = setting(..., "how many pictures make a step")
    augment: PhotoAugmentSettings = setting(PhotoAugmentSettings(), "changes to training pictures")
    label_smoothing: float = setting(
        0.1, "share of the target given to all classes alike", ge=0, lt=1
    )
    evaluate: PhotoEvaluateSettings = setting(PhotoEvaluateSettings(), "scores while training")
    input: InputSettings = setting(InputSettings(), "how pictures reach the model")
