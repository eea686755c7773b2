"""What tasks on pictures in classes share: their size over the run, and the loss."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from paceline.tasks.samples import SampleTask
from paceline.tasks.stream import Samples


@dataclass(frozen=True)
class PictureSettings:
    full_size: int
    """Side of a training picture in pixels."""
    sizes: list[tuple[float, int]]
    """Smaller pictures first: from which share of the run on, which side."""
    label_smoothing: float


class PictureTask(SampleTask):
    unit = "image"
    best_by = "top1"

    @property
    @abstractmethod
    def pictures(self) -> PictureSettings: ...

    def size_of(self, samples: Samples) -> int:
        """Progressive resizing: early steps cost less on smaller pictures, and lose little."""
        looks = self.pictures
        begun = [size for share, size in looks.sizes if share <= samples.share_of_run]
        return begun[-1] if begun else looks.full_size

    def summed_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = self.pictures.label_smoothing
        return F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=smoothing)


def made_up_pictures(network: nn.Module, num: int, size: int, device: torch.device) -> torch.Tensor:
    """The loss of so many black pictures that all are of the first class."""
    pictures = torch.zeros(num, 3, size, size, device=device)
    labels = torch.zeros(num, dtype=torch.int64, device=device)
    logits = network(pictures.contiguous(memory_format=torch.channels_last))
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def channels_last(model: nn.Module, device: torch.device) -> nn.Module:
    """Convolutions on CPUs and tensor cores are fastest when a pixel's channels lie together."""
    moved: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda":
        lay_out_pointwise(moved)
    return moved


def lay_out_pointwise(model: nn.Module) -> None:
    """A kernel of 1x1 counts as channels-last however its strides are written. cuDNN writes those
    of its gradient in one way, and DDP compares them: others it copies in every step, and warns."""
    for weight in model.parameters():
        if weight.ndim == 4 and weight.shape[2:] == (1, 1):
            num_in = weight.shape[1]
            strides = (num_in, 1, num_in, num_in)
            weight.data = weight.data.contiguous().as_strided(weight.shape, strides)
