"""What passes between the host and a device while code runs, recorded without having a device.

torch's `meta` device takes the branches that CUDA takes and has no memory, so whatever is read from
it would raise. Here a read is recorded and answered with something made up, so that the code goes
on and one pass shows all reads. Recorded besides: every copy between host and device, every
operation whose operands are on different devices, which meta does not refuse in place, and those on
types of numbers for which CUDA has no kernel.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")
_aten = torch.ops.aten
_COPIES = (_aten._to_copy.default, _aten.copy_.default)
_READS = {
    _aten._local_scalar_dense.default: "item",
    _aten.nonzero.default: "nonzero",
    _aten.equal.default: "equal",
    _aten.masked_select.default: "masked_select",
}
_FOR_FLOATS = (
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
)
"""What CUDA does not do with whole numbers, though processors (and meta) do."""
_MAKERS = ("tensor", "as_tensor", "new_tensor")
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Passage:
    """One thing that a CUDA device would have waited for, or would have refused."""

    kind: str
    """'read' from the device, 'copy' to it, 'mixed' devices in one operation, or 'lacking' where
    CUDA has no kernel."""
    operation: str
    where: str
    """The innermost line that is not torch's."""

    def __str__(self) -> str:
        return f"{self.kind} by {self.operation} in {self.where}"


@dataclass
class DeviceWatch:
    passages: list[Passage] = field(default_factory=list)

    def add(self, kind: str, operation: str) -> None:
        self.passages.append(Passage(kind, operation, _where()))

    def of(self, *kinds: str) -> list[Passage]:
        return [passage for passage in self.passages if passage.kind in kinds]


@contextmanager
def watching() -> Iterator[DeviceWatch]:
    watch = DeviceWatch()
    with _Operations(watch), _Constants(watch):
        yield watch


class _Constants(TorchFunctionMode):
    """`torch.tensor(values, device=...)` is a copy that waits, and no dispatch mode sees it."""

    def __init__(self, watch: DeviceWatch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        is_copy = name in _MAKERS and not any(_is_there(a) for a in args if name == "as_tensor")
        if is_copy and isinstance(made, torch.Tensor) and made.device == META:
            self.watch.add("copy", f"{name} of Python's numbers")
        return made


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, watch: DeviceWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and func._can_decompose():
            with self:  # inference mode shows what is made of several operations as one
                return func.decompose(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if func in _COPIES:
            return self._copy(func, args, kwargs)
        if func in _READS and any(t.device == META for t in tensors):
            self.watch.add("read", _READS[func])
            return _made_up(func, args[0])
        if _picks_by_mask(func, args):
            self.watch.add("read", "indexing with a mask")
            return args[0].new_empty(_picked_shape(*args))
        if _are_mixed(tensors):
            self.watch.add("mixed", str(func))
        if _lacks_kernel(func, tensors):
            self.watch.add("lacking", f"{func} of {tensors[0].dtype}")
        return func(*args, **kwargs)

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        from_device = args[0] if func is _aten._to_copy.default else args[1]
        to = kwargs.get("device", from_device.device) if from_device is args[0] else args[0].device
        if to is None or torch.device(to).type == from_device.device.type:
            return func(*args, **kwargs)
        if from_device.device == META:
            self.watch.add("read", "copy to the host")
            if from_device is not args[0]:
                return args[0].fill_(1)
            dtype = kwargs.get("dtype") or from_device.dtype
            return torch.full(from_device.shape, 1, dtype=dtype)
        self.watch.add("copy", "copy to the device")
        return func(*args, **kwargs)


def _is_there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device == META


def _are_mixed(tensors: list[torch.Tensor]) -> bool:
    """A single number of the host may go into any operation: it is sent as an argument of it."""
    on_host = any(t.device.type == "cpu" and t.ndim > 0 for t in tensors)
    return on_host and any(t.device == META for t in tensors)


def _lacks_kernel(func: Any, tensors: list[torch.Tensor]) -> bool:
    if func.overloadpacket.__name__ not in _FOR_FLOATS:
        return False
    return any(_is_there(t) and not t.is_floating_point() for t in tensors)


def _picks_by_mask(func: Any, args: Any) -> bool:
    if func is not _aten.index.Tensor or args[0].device != META:
        return False
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])


def _picked_shape(values: torch.Tensor, indices: Any) -> list[int]:
    mask = next(i for i in indices if i is not None)
    return [mask.numel(), *values.shape[mask.ndim :]]


def _made_up(func: Any, tensor: torch.Tensor) -> Any:
    if func is _aten._local_scalar_dense.default:
        return 1.0 if tensor.is_floating_point() else 1
    if func is _aten.nonzero.default:
        return tensor.new_empty(tensor.numel(), tensor.ndim, dtype=torch.int64)
    if func is _aten.masked_select.default:
        return tensor.new_empty(tensor.numel())
    return True


def _where() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, "<")) and name != __file__ and "contextlib" not in name:
            break
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno}"
