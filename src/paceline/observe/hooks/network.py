"""DDP, and the collectives that a script or FSDP calls through torch.distributed."""

import sys
import weakref
from functools import partial
from typing import Any

from .. import compiled
from . import wrap

State = Any

_COLLECTIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
    "monitored_barrier",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
)
TIMED = "timed"
LATER = "later"
"""It runs beside the script on a CPU: what is waited for it at the end is timed."""
UNTIMED = "untimed"
"""It runs on a device, where the host's clock does not see it."""
_WAITING = ("barrier", "monitored_barrier")


def watch_collectives(state: State, module: Any) -> None:
    """`torch.distributed.distributed_c10d`, before torch.distributed passes its functions on."""
    for name in filter(partial(hasattr, module), _COLLECTIVES):  # not every torch has them all
        wrap(module, name, lambda original, name=name: _collective(state, original, name))
    _watch_waiting(state, module)


def _collective(state: State, original: Any, name: str) -> Any:
    def collective(*arguments: Any, **options: Any) -> Any:
        if compiled.is_compiling():
            return original(*arguments, **options)
        observer = state[0]
        if not observer.here():
            return original(*arguments, **options)
        observer.begin_collective()
        try:
            return original(*arguments, **options)
        finally:
            observer.end_collective(name, *_size(name, arguments, options))

    return collective


def _watch_waiting(state: State, module: Any) -> None:
    """What began beside the script, as FSDP's collectives do, is waited for here on a CPU; a device
    is only told to wait."""

    def make(original: Any) -> Any:
        def wait(self: Any, *arguments: Any, **options: Any) -> Any:
            if compiled.is_compiling():
                return original(self, *arguments, **options)
            observer = state[0]
            if not observer.here() or sys.modules["torch"].cuda.is_initialized():
                return original(self, *arguments, **options)
            observer.begin_collective()
            try:
                return original(self, *arguments, **options)
            finally:
                observer.end_collective("", 0, TIMED)

        return wait

    if hasattr(module, "Work"):
        wrap(module.Work, "wait", make)


def _size(name: str, arguments: Any, options: Any) -> tuple[int, str]:
    """Bytes, and whether the host's clock tells how long it took."""
    try:
        waits = name in _WAITING or "object" in name
        is_beside = bool(options.get("async_op")) or any(a is True for a in arguments)
        num_bytes, on_device = 0, False
        for value in (*arguments, *options.values()):
            parts = value if isinstance(value, (list, tuple)) else (value,)
            for part in parts[:1024]:
                if hasattr(part, "element_size"):
                    num_bytes = max(num_bytes, part.numel() * part.element_size())
                    on_device = on_device or part.device.type != "cpu"
        if on_device and not waits:
            return num_bytes, UNTIMED
        return num_bytes, LATER if is_beside else TIMED
    except Exception:
        return 0, UNTIMED


def watch_ddp(state: State, module: Any) -> None:
    """`torch.nn.parallel.distributed`: DDP has a timer of its own, which costs 7 us to read."""

    def make_init(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            if state[0].here():
                _use_timer(state[0], self)

        return init

    def make_sync(original: Any) -> Any:
        def _sync_buffers(self: Any) -> Any:
            if compiled.is_compiling():
                return original(self)
            observer = state[0]
            if not observer.here() or self.device_type != "cpu":
                return original(self)
            observer.begin_collective()
            try:
                return original(self)
            finally:
                observer.end_collective("broadcast of buffers", 0, TIMED)

        return _sync_buffers

    wrap(module.DistributedDataParallel, "__init__", make_init)
    wrap(module.DistributedDataParallel, "_sync_buffers", make_sync)


def _use_timer(observer: Any, network: Any) -> None:
    """Every step is timed on a CPU. A device is left at torch's one in a hundred, because a step
    that is timed waits for it."""
    try:
        if network.device_type == "cpu":
            network._set_ddp_runtime_logging_sample_rate(1)
        network._get_ddp_logging_data()
        observer.networks.append(weakref.ref(network))
        observer.times.sign()
    except Exception:
        return
