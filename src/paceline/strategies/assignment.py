"""What the chief tells a trainer to do, and what the trainer tells of what it has done."""

from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.strategies.channel import Message
from paceline.strategies.leases import Lease


@dataclass(frozen=True)
class Assignment:
    lease: Lease
    ahead: Lease | None
    """What comes after it most likely, so that its samples can be read meanwhile."""
    least_version: int
    """Of the weights to compute with."""
    num_units: int
    """By which losses are divided: the units of the whole step, where they are known."""
    loss_scale: float = 1.0
    held: dict[str, float] = field(default_factory=dict)
    """Seconds, by phase, that the chief made the trainer wait for reasons of its own."""

    def as_message(self) -> Message:
        return {
            "lease": _as_list(self.lease),
            "ahead": _as_list(self.ahead) if self.ahead else None,
            "least_version": self.least_version,
            "num_units": self.num_units,
            "loss_scale": self.loss_scale,
            "held": self.held,
        }

    @classmethod
    def of(cls, told: Message) -> "Assignment":
        lease, ahead = told["lease"], told["ahead"]
        known = {name: told[name] for name in ("least_version", "num_units", "loss_scale", "held")}
        return cls(lease=_lease(lease), ahead=_lease(ahead) if ahead else None, **known)


def _as_list(lease: Lease) -> list[int]:
    return [lease.number, lease.indices.start, lease.indices.stop]


def _lease(told: list[int]) -> Lease:
    return Lease(told[0], range(told[1], told[2]))


@dataclass(frozen=True)
class Report:
    """A gradient lies at all servers; this is what else came out of its lease."""

    lease: int
    version: int
    """Of the weights that it was computed with; where servers differed, the oldest."""
    loss_sum: float
    num_units: int
    statistics: torch.Tensor
    """Sums of batch norm's, over the lease's micro-batches."""
    is_finite: bool = True
    is_sent: bool = True
    """False where it was known before sending that nobody wants it any more."""
    wants_to_stop: bool = False

    def as_message(self) -> Message:
        return {
            "lease": self.lease,
            "version": self.version,
            "loss_sum": self.loss_sum,
            "num_units": self.num_units,
            "is_finite": self.is_finite,
            "is_sent": self.is_sent,
            "wants_to_stop": self.wants_to_stop,
        }

    @classmethod
    def of(cls, told: dict[str, Any], statistics: torch.Tensor) -> "Report":
        return cls(
            lease=int(told["lease"]),
            version=int(told["version"]),
            loss_sum=float(told["loss_sum"]),
            num_units=int(told["num_units"]),
            statistics=statistics,
            is_finite=bool(told["is_finite"]),
            is_sent=bool(told["is_sent"]),
            wants_to_stop=bool(told["wants_to_stop"]),
        )
