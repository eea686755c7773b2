"""Where habits of a script are seen: values that are read, samplers, schedulers, what is saved."""

import sys
from typing import Any

from .. import compiled
from . import wrap

State = Any

_READS = ("item", "tolist", "__float__", "__int__", "__bool__", "__repr__", "__format__")
"""What prints a tensor reads it too."""


def watch_reads(state: State, torch: Any) -> None:
    """Of `torch.Tensor`: on a device, each waits for everything that was queued before."""
    for name in _READS:
        wrap(torch.Tensor, name, lambda original: _reading(state, original))
    wrap(torch.Tensor, "cpu", lambda original: _copying(state, original))
    wrap(torch, "compile", lambda original: _compiling(state, original))


def _reading(state: State, original: Any) -> Any:
    frame_of = sys._getframe

    def read(self: Any, *arguments: Any, **options: Any) -> Any:
        if not compiled.is_compiling() and state[0].counts_reads:
            state[0].saw_read(self, frame_of(1))
        return original(self, *arguments, **options)

    return read


def _copying(state: State, original: Any) -> Any:
    """From a device; of a tensor on the CPU it does nothing."""
    frame_of = sys._getframe

    def cpu(self: Any, *arguments: Any, **options: Any) -> Any:
        if not compiled.is_compiling() and state[0].counts_reads and not self.is_cpu:
            state[0].saw_read(self, frame_of(1))
        return original(self, *arguments, **options)

    return cpu


def _compiling(state: State, original: Any) -> Any:
    def compile(*arguments: Any, **options: Any) -> Any:
        if not compiled.is_compiling():
            state[0].begins_to_compile()
        return original(*arguments, **options)

    return compile


def watch_sampler(state: State, module: Any) -> None:
    """`torch.utils.data.distributed`."""

    def make_init(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            state[0].saw_sampler(self)

        return init

    def make_set(original: Any) -> Any:
        def set_epoch(self: Any, epoch: int) -> Any:
            state[0].saw_set_epoch(self)
            return original(self, epoch)

        return set_epoch

    wrap(module.DistributedSampler, "__init__", make_init)
    wrap(module.DistributedSampler, "set_epoch", make_set)


def watch_made_loaders(state: State, module: Any) -> None:
    """`torch.utils.data.dataloader`: the line to change is where a loader is made."""

    def make(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            state[0].saw_loader_made(self)

        return init

    wrap(module.DataLoader, "__init__", make)


def watch_schedulers(state: State, module: Any) -> None:
    """`torch.optim.lr_scheduler`: that one was made; how often it steps, it counts itself."""

    def make(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            state[0].saw_scheduler(self)

        return init

    wrap(module.LRScheduler, "__init__", make)


def watch_scaler(state: State, module: Any) -> None:
    """`torch.amp.grad_scaler`."""

    def make(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            if getattr(self, "_enabled", False):
                state[0].saw_use("scaler")

        return init

    wrap(module.GradScaler, "__init__", make)


def watch_saved(state: State, module: Any) -> None:
    """`torch.serialization`: the names in what is saved, never its values."""

    def make(original: Any) -> Any:
        def save(*arguments: Any, **options: Any) -> Any:
            content = options.get("obj", arguments[0] if arguments else None)
            state[0].saw_saved(content)
            return original(*arguments, **options)

        return save

    wrap(module, "save", make)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "save"):
        torch.save = module.save  # type: ignore[attr-defined]


def watch_networks(state: State, module: Any) -> None:
    """`torch.nn.parallel.distributed`."""

    def make(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            state[0].saw_network(self)

        return init

    wrap(module.DistributedDataParallel, "__init__", make)
