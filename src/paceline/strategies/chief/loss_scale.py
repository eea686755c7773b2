"""fp16's loss scale, kept by the chief for all trainers by the rules of torch's GradScaler.

Stored as a GradScaler stores itself, so that checkpoints are the same.
"""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class LossScale:
    """1 for ever where the arithmetic needs none."""

    scale: float = 1.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    num_since_growth: int = 0
    is_enabled: bool = False

    @classmethod
    def of(cls, is_enabled: bool, stored: dict[str, Any]) -> "LossScale":
        if not is_enabled:
            return cls()
        told = stored or torch.amp.GradScaler("cpu").state_dict()
        return cls(
            told["scale"],
            told["growth_factor"],
            told["backoff_factor"],
            told["growth_interval"],
            told["_growth_tracker"],
            is_enabled=True,
        )

    def after_step(self, is_finite: bool) -> None:
        if not self.is_enabled:
            return
        if not is_finite:
            self.scale *= self.backoff_factor
            self.num_since_growth = 0
            return
        self.num_since_growth += 1
        if self.num_since_growth == self.growth_interval:
            self.scale *= self.growth_factor
            self.num_since_growth = 0

    def numbers(self) -> dict[str, Any]:
        if not self.is_enabled:
            return {}
        return {
            "scale": self.scale,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self.num_since_growth,
        }
