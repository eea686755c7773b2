"""Fine-tuning: the weights that a new run begins with, from a run, a checkpoint or a file.

Only safetensors are read: they hold numbers and nothing else, while a pickle may hold a program.
"""

from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from paceline.errors import UserError
from paceline.files import expand_home
from paceline.models.weights import load_weights
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.tasks.contract import Task
from paceline.train.reduce import Tensors
from paceline.world import World

_WRAPPER: Final = "module."  # what DistributedDataParallel puts before every name
_NOT_USED: Final = "num_batches_tracked"  # torch's own batch norm counts; ours has no use for it
_SHOWN: Final = 3


def begin(task: Task, network: nn.Module, world: World) -> str | None:
    """Give every process's fresh network the weights that the recipe names; says so in words."""
    start_from = task.start_from
    if start_from is None:
        return None
    text: str | None = None
    if world.is_first:
        text = begin_with(network, start_from, task.last_layer)
    for tensor in network.state_dict().values():
        world.send_tensor(tensor)
    return text


def begin_with(network: nn.Module, start_from: str, last_layer: str) -> str:
    """Put stored weights into a fresh network; what was done, in words."""
    own = network.state_dict()
    found = {
        name.removeprefix(_WRAPPER): value
        for name, value in read_start(Path(start_from)).items()
        if not name.endswith(_NOT_USED)
    }
    last = [name for name in own if last_layer and name.startswith(last_layer)]
    is_other_task = any(name in found and found[name].shape != own[name].shape for name in last)
    for name in last if is_other_task else []:
        found[name] = own[name]
    _refuse_other_network(own, found, start_from)
    network.load_state_dict(found)
    anew = "; the last layer starts anew" if is_other_task else ""
    return f"begins with the weights of {start_from}{anew}"


def read_start(path: Path) -> Tensors:
    path = expand_home(path)
    if RunDirectory(path).exists():
        return load_weights(path, "best").tensors
    if (path / stored.WEIGHTS).is_file():
        averaged = path / stored.AVERAGE
        return _read_file(averaged if averaged.is_file() else path / stored.WEIGHTS)
    if path.is_file():
        return _read_file(path)
    what = "is neither a run nor a checkpoint" if path.is_dir() else "does not exist"
    raise UserError(
        f"model.start_from={path} {what}",
        "name a run directory, a checkpoint in it, or a .safetensors file",
    )


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"cannot read weights from {path}: {error}",
            "give a .safetensors file (safetensors.torch.save_file writes one from a state dict)",
        ) from error


def _refuse_other_network(own: Tensors, found: Tensors, start_from: str) -> None:
    missing = [name for name in own if name not in found]
    unknown = [name for name in found if name not in own]
    misfits = [name for name in own if name in found and found[name].shape != own[name].shape]
    problems = [
        f"{label} {', '.join(names[:_SHOWN])}" + (" ..." if len(names) > _SHOWN else "")
        for label, names in (("lacks", missing), ("has also", unknown), ("differs in", misfits))
        if names
    ]
    if problems:
        raise UserError(
            f"the weights in {start_from} are of another network: it {'; it '.join(problems)}",
            "give model.depth and model.width of the network that was stored",
        )
