"""Residual networks for photographs: ResNet-18, -34 and -50 (He et al. 2015), stride in the 3x3.

Nothing here knows how pictures are read, or where the weights come from.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import nn

from paceline.models.conv import Conv3x3
from paceline.models.norm import StepBatchNorm2d

STAGES: Final = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
NUM_CLASSES: Final = 1000


class BasicBlock(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, num_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv3x3(num_in, width, stride)
        self.bn1 = StepBatchNorm2d(width)
        self.conv2 = Conv3x3(width, width)
        self.bn2 = StepBatchNorm2d(width)
        self.downsample = shortcut(num_in, width, stride)

    @property
    def last_norm(self) -> StepBatchNorm2d:
        return self.bn2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn1.then_relu(self.conv1(x))
        return self.bn2.then_relu(self.conv2(y), before=self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1. The stride is in the 3x3 ("v1.5"), which is half a point better than the
    paper's stride in the first 1x1, because that threw three quarters of its input away."""

    expansion = 4

    def __init__(self, num_in: int, width: int, stride: int) -> None:
        super().__init__()
        num_out = width * self.expansion
        self.conv1 = nn.Conv2d(num_in, width, 1, bias=False)
        self.bn1 = StepBatchNorm2d(width)
        self.conv2 = Conv3x3(width, width, stride)
        self.bn2 = StepBatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, num_out, 1, bias=False)
        self.bn3 = StepBatchNorm2d(num_out)
        self.downsample = shortcut(num_in, num_out, stride)

    @property
    def last_norm(self) -> StepBatchNorm2d:
        return self.bn3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn1.then_relu(self.conv1(x))
        y = self.bn2.then_relu(self.conv2(y))
        return self.bn3.then_relu(self.conv3(y), before=self.downsample(x))


def shortcut(num_in: int, num_out: int, stride: int) -> nn.Module:
    """A projection where the shape changes (option B of the paper), otherwise nothing."""
    if stride == 1 and num_in == num_out:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 1, stride, bias=False), StepBatchNorm2d(num_out)
    )


class ImagenetResNet(nn.Module):
    """Names of parameters are the ones that published weights use, so those can be loaded."""

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(self, depth: int, num_classes: int = NUM_CLASSES, width: int = 64) -> None:
        super().__init__()
        block = Bottleneck if depth >= 50 else BasicBlock
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = StepBatchNorm2d(width)
        num_in = width
        for number, num_blocks in enumerate(STAGES[depth]):
            stage_width = width << number
            blocks: list[nn.Module] = []
            for place in range(num_blocks):
                blocks.append(block(num_in, stage_width, 2 if place == 0 and number else 1))
                num_in = stage_width * block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(num_in, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """Every block starts as the identity (Goyal et al. 2017, section 5.1)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock | Bottleneck):
                nn.init.zeros_(module.last_norm.weight)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1.then_relu(self.conv1(x))
        x = F.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]
