"""What a batch is made of: arrays and tensors in tuples, lists, dicts and dataclasses of any depth.

Moved to a device, measured, and compared. Other values are left as they are.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def to_device(batch: Any, device: "torch.device") -> Any:
    """The same batch of tensors on the device; arrays become tensors on the way."""
    if isinstance(batch, Staged):
        return batch.arrive(device)
    if device.type == "cpu":
        return _changed(batch, lambda value: _moved(_as_tensor(value), device))
    return stage(batch, device).arrive(device)


class _Place:
    """Where in the memory of a staged batch one of its tensors lies."""

    def __init__(self, tensor: "torch.Tensor", start: int) -> None:
        import torch  # noqa: PLC0415  (a task's class is known without it)

        self.start, self.dtype, self.shape = start, tensor.dtype, tensor.shape
        self.end = start + tensor.nbytes
        # Of the same layout (channels last), but without gaps.
        self.stride = torch.empty_like(tensor, device="meta").stride()

    def within(self, memory: "torch.Tensor") -> "torch.Tensor":
        flat = memory[self.start : self.end].view(self.dtype)
        return flat.as_strided(self.shape, self.stride, flat.storage_offset())


@dataclasses.dataclass(frozen=True)
class Staged:
    """A batch whose tensors lie side by side in one piece of memory, so that one copy sends all.

    Memory for CUDA is pinned: only from there does a copy go on while the host does something
    else. torch keeps such memory, and gives it out again when the copies from it are done.
    """

    memory: "torch.Tensor"
    form: Any
    """The batch, with a `_Place` for each tensor."""

    def arrive(self, device: "torch.device") -> Any:
        return self.unpacked(self.memory.to(device, non_blocking=True))

    def unpacked(self, memory: "torch.Tensor") -> Any:
        """The batch, as views of the memory it has been copied to."""

        def place(value: Any) -> Any:
            return value.within(memory) if isinstance(value, _Place) else value

        return _changed(self.form, place)


_ALIGNMENT = 64


def stage(batch: Any, device: "torch.device") -> Staged:
    """Ready to be sent. Called by the threads that read ahead."""
    import torch  # noqa: PLC0415  (a task's class is known without it)

    tensors: list[torch.Tensor] = []
    places: list[_Place] = []

    def place(value: Any) -> Any:
        value = _as_tensor(value)
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return _moved(value, device)
        last = places[-1].end if places else 0
        places.append(_Place(value, -(-last // _ALIGNMENT) * _ALIGNMENT))
        tensors.append(value)
        return places[-1]

    form = _changed(batch, place)
    memory = _new_memory(places[-1].end if places else 0, device)
    for where, tensor in zip(places, tensors, strict=True):
        where.within(memory).copy_(tensor)
    return Staged(memory, form)


def _new_memory(num_bytes: int, device: "torch.device") -> "torch.Tensor":
    import torch  # noqa: PLC0415  (a task's class is known without it)

    if device.type != "cuda":
        return torch.empty(num_bytes, dtype=torch.uint8)
    with torch.cuda.device(device):  # else a new thread would begin to use the first device
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)


def _as_tensor(value: Any) -> Any:
    import torch  # noqa: PLC0415  (a task's class is known without it)

    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return value  # texts, objects
    if not value.flags.writeable or any(stride < 0 for stride in value.strides):
        value = value.copy()  # torch takes neither
    return torch.from_numpy(value)


def _moved(value: Any, device: "torch.device") -> Any:
    """Whatever can be moved: a tensor, or something of the user's."""
    return value.to(device) if callable(getattr(value, "to", None)) else value


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_changed(part, change) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(_changed(part, change) for part in value)
    if isinstance(value, Mapping):
        return {name: _changed(part, change) for name, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(
            value, **{name: _changed(part, change) for name, part in parts.items()}
        )
    return change(value)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no container, with its place, like '[0].pictures'."""
    if isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from leaves(part, f"{name}[{number}]")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{name}[{key!r}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{name}.{field.name}")
    else:
        yield name, value


def num_bytes(batch: Any) -> int:
    return sum(int(getattr(value, "nbytes", 0)) for _, value in leaves(batch))


def find_difference(one: Any, other: Any) -> str | None:
    """The place of the first value that differs; None when the batches are equal, bit for bit."""
    first, second = list(leaves(one)), list(leaves(other))
    if [name for name, _ in first] != [name for name, _ in second]:
        return "its form"
    for (name, before), (_, after) in zip(first, second, strict=True):
        if not _is_same(before, after):
            return f"the value at {name}" if name else "its value"
    return None


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if not hasattr(one, "shape"):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    is_nan = (one != one) & (other != other)  # noqa: PLR0124  (for arrays and tensors alike)
    return bool(((one == other) | is_nan).all())
