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
    return _changed(batch, lambda value: _tensor_on(value, device))


def _tensor_on(value: Any, device: "torch.device") -> Any:
    import torch  # noqa: PLC0415  (a task's class is known without it)

    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            return value  # texts, objects
        if not value.flags.writeable or any(stride < 0 for stride in value.strides):
            value = value.copy()  # torch takes neither
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor):
        return value.to(device) if callable(getattr(value, "to", None)) else value
    if device.type != "cpu" and value.device.type == "cpu":
        value = value.pin_memory()
    return value.to(device, non_blocking=True)


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
