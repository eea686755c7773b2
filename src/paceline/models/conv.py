"""3x3 convolutions: nn.Conv2d's, and on a CPU a kernel where it is made for their shape."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from paceline.kernels import conv as kernel


class Conv3x3(nn.Conv2d):
    """nn.Conv2d of 3x3 that keeps the size of its input (or halves it), without bias."""

    kernels: ClassVar = (kernel.NAME,)

    def __init__(self, num_in: int, num_out: int, stride: int = 1) -> None:
        super().__init__(num_in, num_out, kernel_size=3, stride=stride, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._has_kernel(x, is_halved=False):
            return kernel.conv3x3(x, self.weight, is_halved=False)
        return super().forward(x)

    def then_max_pool(self, x: torch.Tensor) -> torch.Tensor:
        """The largest of every 2x2 results, in one operation where there is a kernel for it."""
        if self._has_kernel(x, is_halved=True):
            return kernel.conv3x3(x, self.weight, is_halved=True)
        return F.max_pool2d(super().forward(x), 2)

    def _has_kernel(self, x: torch.Tensor, is_halved: bool) -> bool:
        is_plain = self.stride == (1, 1) and x.device.type == "cpu"
        return is_plain and kernel.can_take(x, self.weight, is_halved)
