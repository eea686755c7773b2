"""A small convolutional network made for accuracy per second of a processor, on small pictures.

What makes it cheap was measured, on CPUs with fp32 channels-last convolutions: pooling comes before
the norm, so norm and activation see a quarter of the values; widths are multiples of 16; SiLU costs
less than ReLU forward and backward together; the first layer is fixed, so no gradient ever has to
be carried back to full resolution. Nothing here knows how pictures are read or augmented.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.models.conv import Conv3x3
from paceline.models.norm import StepBatchNorm2d

PATCH_SIZE = 2
PATCH_VALUES = 3 * PATCH_SIZE * PATCH_SIZE


class FastNet(nn.Module):
    """A fixed whitening layer, three pooled stages of 3x3 convolutions, one linear layer.

    `depths` are the convolutions of each stage. Any picture size from 16 px up works, so training
    may start on small pictures. The largest response over all places feeds the last layer, whose
    logits are scaled down by `logit_scale` to let the rest of the network train at a high rate
    from the first step.
    """

    def __init__(
        self,
        widths: tuple[int, int, int] = (64, 128, 256),
        depths: tuple[int, int, int] = (2, 3, 3),
        num_classes: int = 10,
        norm_momentum: float = 0.2,
        logit_scale: float = 1 / 9,
    ) -> None:
        super().__init__()
        self.logit_scale = logit_scale
        self.whiten = nn.Conv2d(3, 2 * PATCH_VALUES, PATCH_SIZE, bias=False)
        self.whiten.weight.requires_grad_(False)
        num_in = (self.whiten.out_channels, *widths[:-1])
        shapes = zip(num_in, widths, depths, strict=True)
        self.stages = nn.Sequential(*(Stage(*shape, norm_momentum) for shape in shapes))
        self.classify = nn.Linear(widths[-1], num_classes, bias=False)

    @torch.no_grad()
    def init_from_pictures(self, images: Tensor, eps: float = 5e-4) -> None:
        """Set the first layer from normalised pictures, a few thousand of the training split.

        Its filters become the principal directions of 2x2 patches, divided by their spread, each
        with its negative. `eps` keeps the directions that hold only noise from being blown up.
        """
        covariance = _patch_covariance(images)
        variances, directions = torch.linalg.eigh(covariance)
        # The sign of an eigenvector is the solver's choice; fixing it makes every machine agree.
        strongest = directions.abs().argmax(dim=0, keepdim=True)
        directions = directions * directions.gather(0, strongest).sign()
        filters = (directions / torch.sqrt(variances + eps)).T.flip(0)
        filters = filters.reshape(PATCH_VALUES, 3, PATCH_SIZE, PATCH_SIZE)
        self.whiten.weight.copy_(torch.cat([filters, -filters]))

    def forward(self, images: Tensor) -> Tensor:
        features = self.stages(F.silu(self.whiten(_one_more_pixel(images))))
        pooled = F.adaptive_max_pool2d(features, 1).flatten(1)
        return cast(Tensor, self.classify(pooled)) * self.logit_scale


class Stage(nn.Module):
    """Convolution, halving, norm, activation; then the other convolutions, two by two."""

    def __init__(self, num_in: int, num_out: int, depth: int, norm_momentum: float) -> None:
        super().__init__()
        self.conv1 = _identity_started_conv(num_in, num_out)
        self.norm1 = _shifting_norm(num_out, norm_momentum)
        num_pairs, is_odd = divmod(depth - 1, 2)
        single = [Single(num_out, norm_momentum)] if is_odd else []
        self.rest = nn.Sequential(
            *single, *(Pair(num_out, norm_momentum) for _ in range(num_pairs))
        )

    def forward(self, features: Tensor) -> Tensor:
        halved = self.conv1.then_max_pool(features)
        return cast(Tensor, self.rest(self.norm1.then_silu(halved)))


class Single(nn.Module):
    """Convolution, norm, activation."""

    def __init__(self, width: int, norm_momentum: float) -> None:
        super().__init__()
        self.conv1 = _identity_started_conv(width, width)
        self.norm1 = _shifting_norm(width, norm_momentum)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm1.then_silu(self.conv1(features))


class Pair(Single):
    """Two of them, and a way around both.

    Where pictures are small already, depth is cheap; docs/training.md says what it was worth.
    """

    def __init__(self, width: int, norm_momentum: float) -> None:
        super().__init__(width, norm_momentum)
        self.conv2 = _identity_started_conv(width, width)
        self.norm2 = _shifting_norm(width, norm_momentum)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm2.then_silu(self.conv2(super().forward(features)), before=features)


def _one_more_pixel(images: Tensor) -> Tensor:
    """The last row and column twice, so that 2x2 patches leave the size as it is.

    An even size halves without losing an edge: of 31 pixels the stages would use 24, then 3x3
    places at the end instead of 4x4.
    """
    wider = F.pad(images, (0, 1, 0, 1), mode="replicate")
    return wider.contiguous(memory_format=torch.channels_last)


def _identity_started_conv(num_in: int, num_out: int) -> Conv3x3:
    """As many filters as there are inputs start by passing their input on, which trains faster."""
    conv = Conv3x3(num_in, num_out)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:num_in])
    return conv


def _shifting_norm(num_features: int, momentum: float) -> StepBatchNorm2d:
    """A norm that learns its shift only: the scale is left to the convolution that follows."""
    norm = StepBatchNorm2d(num_features, momentum=momentum)
    norm.weight.requires_grad_(False)
    return norm


def _patch_covariance(images: Tensor) -> Tensor:
    """Second moments of all 2x2 patches, in double precision: small eigenvalues matter here."""
    patches = F.unfold(images.contiguous(), PATCH_SIZE).transpose(1, 2).reshape(-1, PATCH_VALUES)
    moments = torch.zeros(PATCH_VALUES, PATCH_VALUES, dtype=torch.double)
    # Block by block, because a double-precision copy of all patches would fill gigabytes.
    for start in range(0, len(patches), 1 << 18):
        block = patches[start : start + (1 << 18)].double()
        moments += block.T @ block
    return moments / len(patches)
