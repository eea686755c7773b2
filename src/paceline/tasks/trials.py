"""What is tried once before an own task trains: mistakes that would else show as wrong results.

Each costs a batch or a forward pass, and each refuses with what to write instead.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.data.readahead import fill_at_once
from paceline.errors import UserError
from paceline.models.norm import take_statistics
from paceline.tasks.batch_values import find_difference
from paceline.tasks.contract import Task
from paceline.tasks.samples import SampleTask, pick_all
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import VALIDATION, samples_of
from paceline.world import World

_NUM_TRIED = 4
_NEAR = 1e-3


def try_out(task: Task, network: nn.Module, index: int) -> None:
    """With the micro-batch that this process begins with; leaves the network as it was."""
    if not isinstance(task, SampleTask):
        return
    batch = _refuse_changing_batch(task, index)
    _refuse_mean_loss(task, network, index)
    _try_backward(task, network, batch)
    if task.recipe.evaluate.every_steps is not None:
        _try_evaluation(task, network)


def _refuse_changing_batch(task: SampleTask, index: int) -> Any:
    """It is asked ahead, by threads, and again after a restart: it must not remember."""
    first, _, again = (fill_at_once(task.begin_batch(n)) for n in (index, index + 1, index))
    difference = find_difference(first, again)
    if difference is not None:
        raise UserError(
            f"{_name(task)}.batch gives something else when asked again for the same samples "
            f"({difference} differs)",
            "draw random numbers from `rng` only (not from random, numpy.random or torch), and "
            "change nothing of `self` in it",
        )
    return first


@torch.no_grad()
def _refuse_mean_loss(task: SampleTask, network: nn.Module, index: int) -> None:
    """The same samples twice double a sum and leave a mean as it is."""
    some = task.samples(index)[:_NUM_TRIED]
    batches = [
        fill_at_once(task.fill(samples_of(numbers, "train"), None))
        for numbers in (some, np.concatenate([some, some]))
    ]
    network.eval()
    once, twice = (float(task.loss(network, task.on_device(batch)).sum()) for batch in batches)
    network.train()
    if once and abs(twice - once) <= _NEAR * abs(once):
        raise UserError(
            f"{_name(task)}.loss is a mean: the same samples twice give the same loss "
            f"({twice:.4g})",
            'return the sum over the batch (reduction="sum"): each step divides by the number of '
            f"all its {task.unit}s, so that any number of processes gives the same gradient",
        )


def _try_backward(task: SampleTask, network: nn.Module, batch: Any) -> None:
    before = {name: value.clone() for name, value in _kept_buffers(network).items()}
    loss = task.loss(network, task.on_device(batch))
    if not isinstance(loss, torch.Tensor) or loss.ndim or not loss.requires_grad:
        shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else loss
        raise UserError(
            f"{_name(task)}.loss returned {shown}",
            "return one number, the sum over the batch, as the tensor that torch computed",
        )
    torch.autograd.backward(loss)
    take_statistics(network)
    moved = [n for n, v in _kept_buffers(network).items() if not torch.equal(v, before[n])]
    useless = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
    network.zero_grad(set_to_none=True)
    if moved:
        raise UserError(
            f"the buffer '{moved[0]}' of the network changes in the forward pass: every process "
            "would have its own, and a restart another",
            "make it a weight, compute it from the batch, or register it with persistent=False "
            "if it is only scratch memory",
        )
    if useless:
        raise UserError(
            f"the loss does not depend on {len(useless)} weights of the network: "
            f"{', '.join(useless[:3])}{' ...' if len(useless) > 3 else ''}",
            "leave them out, or freeze them: requires_grad_(False)",
        )


def _try_evaluation(task: SampleTask, network: nn.Module) -> None:
    """On a few samples, by each process alone: the first evaluation may be hours away."""
    try:
        numbers = pick_all(task.split_numbers(VALIDATION))[: 2 * _NUM_TRIED]
    except UserError as error:
        raise UserError(
            f"there is nothing to validate on: {error.what}",
            "return validation samples from `open`, or set evaluate.every_steps=null",
        ) from error
    batches = ScoreBatches(task, samples_of(numbers, VALIDATION), World(0, 1, task.device), False)
    try:
        task.score_batches(network, batches)
    except (ValueError, ArithmeticError):  # a score may need more samples than these
        return
    finally:
        network.train()


def _kept_buffers(network: nn.Module) -> dict[str, torch.Tensor]:
    """Those that a checkpoint holds."""
    stored = network.state_dict().keys()
    return {name: value for name, value in network.named_buffers() if name in stored}


def _name(task: Task) -> str:
    return type(task).__name__
