"""Weights of a run for evaluating, translating and exporting: one checkpoint, or an average."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from paceline.errors import UserError
from paceline.record import checkpoints as stored

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Weights:
    tensors: Tensors
    step: int
    name: str
    """What a reader calls them, e.g. 'step 3,000' or 'average of 5 up to step 3,000'."""


def load_weights(run: Path, which: str) -> Weights:
    """`best`, `newest`, a step, or `average:K` for the mean of the newest K checkpoints."""
    if which.startswith("average:"):
        return _average(run, which.removeprefix("average:"))
    checkpoint = stored.choose(run, which)
    step = stored.step_of(checkpoint)
    return Weights(_load(checkpoint), step, f"step {step:,}")


def _load(checkpoint: Path) -> Tensors:
    problem = stored.damage(checkpoint)
    if problem:
        raise UserError(f"damaged checkpoint: {problem}", "name another with --checkpoint")
    averaged = checkpoint / stored.AVERAGE
    return load_file(averaged if averaged.exists() else checkpoint / stored.WEIGHTS)


def _average(run: Path, count: str) -> Weights:
    if not count.isdecimal() or int(count) < 1:
        raise UserError(f"'average:{count}' names no number of checkpoints", "write average:5")
    found = stored.all_checkpoints(run / "checkpoints")[-int(count) :]
    if not found:
        raise UserError(f"{run} has no checkpoint", "train it first")
    sums: dict[str, torch.Tensor] = {}
    for checkpoint in found:
        for name, tensor in _load(checkpoint).items():
            value = tensor.double()
            sums[name] = sums[name] + value if name in sums else value
    step = stored.step_of(found[-1])
    mean = {name: (total / len(found)).float() for name, total in sums.items()}
    return Weights(mean, step, f"average of {len(found)} up to step {step:,}")
