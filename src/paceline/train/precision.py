"""The arithmetic of a run on the devices it has: agreed on by all processes, then switched on.

What a device can do is decided in `machine/arithmetic.py`. On a processor nothing is switched.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from paceline.errors import UserError
from paceline.machine.arithmetic import (
    Arithmetic,
    Capability,
    best_precision,
    choose_arithmetic,
    weakest,
)
from paceline.settings import Recipe
from paceline.world import World

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def agree_on_arithmetic(recipe: Recipe, world: World) -> Arithmetic:
    """The same in every process, whatever cards the hosts have."""
    told = world.gather_values(_capability_of(world.device))
    capabilities = [(int(each[0]), int(each[1])) if each else None for each in told]
    # AMD's cards count otherwise; all that torch supports have bf16, and none is sure to have TF32.
    tf32 = recipe.tf32 and torch.version.hip is None
    chosen = choose_arithmetic(recipe.precision, tf32, weakest(capabilities))
    if world.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = chosen.tf32
        torch.backends.cudnn.allow_tf32 = chosen.tf32
    return chosen


def _capability_of(device: torch.device) -> Capability | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def multiplying_in(arithmetic: Arithmetic, device: torch.device) -> AbstractContextManager[Any]:
    """Around forward passes; backward follows what forward did."""
    if arithmetic.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_TYPES[arithmetic.precision])


def arithmetic_of_scores(recipe: Recipe, world: World) -> Arithmetic:
    """For weights that may have been trained elsewhere: what this device lacks is no hindrance."""
    if world.device.type == "cpu":
        return Arithmetic("fp32")
    try:
        return agree_on_arithmetic(recipe, world)
    except UserError:
        return Arithmetic(best_precision(_capability_of(world.device)))


def scoring_in(arithmetic: Arithmetic, device: torch.device) -> AbstractContextManager[Any]:
    """Around evaluation: as a device multiplies in training. A processor scores in fp32, which
    costs little there."""
    return nullcontext() if device.type == "cpu" else multiplying_in(arithmetic, device)


def number_type(arithmetic: Arithmetic) -> torch.dtype:
    return _TYPES.get(arithmetic.precision, torch.float32)


@contextmanager
def exactly(strictly: bool) -> Iterator[None]:
    """Only operations that repeat themselves, where there are such; `strictly`, others are refused.
    torch's fused attention is exact in the latter case alone."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=not strictly)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def scoring_exactly() -> AbstractContextManager[None]:
    """Around evaluation of a run that is exact: a score that the user's code adds up in some other
    way must not end it."""
    return exactly(False) if torch.are_deterministic_algorithms_enabled() else nullcontext()
