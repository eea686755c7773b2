"""Checks that a stored training state opens on another kind of device and goes on there."""

import shutil

import torch

from paceline.selftest.bench import Bench, losses_of, open_attempt, require, train
from paceline.train.state import TrainState, optimizer_tensors, weight_tensors

Stored = dict[str, dict[str, torch.Tensor]]

_GOES_ON_ALIKE = 2e-2
"""Of the loss: two kinds of devices round differently, and six steps carry that along."""


def state_moves(bench: Bench, task: str, optimizer: str) -> str:
    """From the device to the processor and back; batch-norm averages and the optimizer's too."""
    cpu = torch.device("cpu")
    for source, target in ((bench.device, cpu), (cpu, bench.device)):
        _move(bench, task, optimizer, (source, target))
    kinds = f"{bench.device.type} and cpu" if bench.device.type != "cpu" else "cpu alone"
    return f"the same bits between {kinds}"


def _move(
    bench: Bench, task: str, optimizer: str, devices: tuple[torch.device, torch.device]
) -> None:
    source, target = devices
    settings = ["log.every_steps=1", "evaluate.every_steps=null", "checkpoint.every_steps=null"]
    settings += [f"optimizer.kind={optimizer}", "schedule.rate=0.01", "precision=fp32"]
    loaded = bench.recipe(task, "steps=6", *settings, "device=auto")
    stayed, moved = bench.new_run(), bench.new_run()
    train(loaded, stayed, source, until_step=3)
    shutil.copytree(stayed.path, moved.path, dirs_exist_ok=True)
    with (
        open_attempt(loaded, stayed, source) as before,
        open_attempt(loaded, moved, target) as after,
    ):
        before.restore()
        after.restore()
        _refuse_other_state(_stored(before.state), _stored(after.state))
        _refuse_state_elsewhere(after.state.optimizer, target)
    at_home, abroad = (
        losses_of(train(loaded, run, device)) for run, device in ((stayed, source), (moved, target))
    )
    for a, b in zip(at_home, abroad, strict=True):
        near = abs(a - b) <= _GOES_ON_ALIKE * abs(a)
        require(near, f"from {source} to {target}: losses went on {at_home} and {abroad}")


def _stored(state: TrainState) -> Stored:
    """What a checkpoint would hold, on the processor."""
    files = {"weights": weight_tensors(state.network), "optimizer": optimizer_tensors(state)}
    return {
        file: {name: tensor.cpu() for name, tensor in tensors.items()}
        for file, tensors in files.items()
    }


def _refuse_other_state(one: Stored, other: Stored) -> None:
    require(one.keys() == other.keys(), f"files {sorted(one)} became {sorted(other)}")
    for file, tensors in one.items():
        require(tensors.keys() == other[file].keys(), f"{file} has other names")
        for name, tensor in tensors.items():
            same = torch.equal(tensor, other[file][name])
            require(same, f"{file}: {name} has other values after the move")


def _refuse_state_elsewhere(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    require(len(optimizer.state) > 0, "the optimizer remembers nothing")
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            beside = not isinstance(value, torch.Tensor) or value.shape != parameter.shape
            require(
                beside or value.device.type == device.type,
                f"the optimizer's {name} is on {getattr(value, 'device', '?')}, not on {device}",
            )
