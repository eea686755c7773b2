"""Which arithmetic a device has, and which of it a run takes. Pure functions; no torch.

NVIDIA tells what a card can do by its compute capability. Tensor cores multiply fp16 from 7.0
(V100, T4 and RTX 20 with 7.5), bf16 and TF32 from 8.0 (A100, A10G, L4, RTX 30, H100).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from paceline.errors import UserError

Capability = tuple[int, int]
"""Compute capability of a CUDA device; a processor has none."""

_BF16_FROM: Final = (8, 0)
_TF32_FROM: Final = (8, 0)
_FAST_FP16_FROM: Final = (7, 0)
_FP16_FROM: Final = (5, 3)
"""Before tensor cores fp16 is no faster than fp32, so nobody is given it who did not ask."""


@dataclass(frozen=True)
class Arithmetic:
    """In what a run multiplies."""

    precision: str
    """'fp32', 'bf16' or 'fp16', of forward and backward."""
    tf32: bool = False
    """Whether products that stay in fp32 round their factors to TF32."""
    capability: Capability | None = None

    @property
    def needs_scaler(self) -> bool:
        """fp16 has few small numbers: gradients are scaled up before they are rounded to it."""
        return self.precision == "fp16"

    def facts(self) -> dict[str, Any]:
        """As they are recorded."""
        told = {"precision": self.precision, "tf32": self.tf32}
        capability = self.capability
        return {**told, "compute_capability": shown(capability)} if capability else told


def shown(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


def best_precision(capability: Capability | None) -> str:
    """What `precision: auto` takes: the fastest that trains without care."""
    if capability is None or capability < _FAST_FP16_FROM:
        return "fp32"
    return "bf16" if capability >= _BF16_FROM else "fp16"


def choose_arithmetic(asked: str, tf32: bool, capability: Capability | None) -> Arithmetic:
    """`asked` is the recipe's precision; what the device lacks is refused."""
    if asked == "fp16" and capability is None:
        raise UserError(
            "precision=fp16 needs a CUDA device, and this run is on the processor",
            "use precision=auto, which is fp32 here",
        )
    if capability is not None:
        _refuse_what_is_lacking(asked, capability)
    return Arithmetic(
        precision=best_precision(capability) if asked == "auto" else asked,
        tf32=tf32 and capability is not None and capability >= _TF32_FROM,
        capability=capability,
    )


def _refuse_what_is_lacking(asked: str, capability: Capability) -> None:
    begins = {"bf16": _BF16_FROM, "fp16": _FP16_FROM}.get(asked)
    if begins is not None and capability < begins:
        raise UserError(
            f"precision={asked} needs a device of compute capability {shown(begins)} or higher, "
            f"and this run has one of {shown(capability)}",
            f"use precision=auto, which is {best_precision(capability)} here",
        )


def weakest(capabilities: Sequence[Capability | None]) -> Capability | None:
    """Of all processes of a world: they must multiply alike, so the weakest device decides."""
    known = [capability for capability in capabilities if capability is not None]
    return min(known) if known and len(known) == len(capabilities) else None


def precisions_of(capability: Capability | None) -> tuple[str, ...]:
    """All that a device trains in with speed; a processor could do bf16 too, but slowly."""
    if capability is None or capability < _FAST_FP16_FROM:
        return ("fp32",)
    return ("fp32", "fp16", "bf16") if capability >= _BF16_FROM else ("fp32", "fp16")
