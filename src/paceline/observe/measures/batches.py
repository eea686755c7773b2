"""How much a batch of a stranger's DataLoader holds, whatever it is made of."""

from typing import Any

_WHOLE_NUMBERS = ("torch.int64", "torch.int32")

Sizes = tuple[int, int, tuple[int, ...] | None]
"""Samples, tokens, and the shape of the first tensor in it. A plain tuple: Python takes one that
has names apart several times slower."""


class BatchSizes:
    """Of the batches of one loader, which are mostly alike: only another shape is looked into."""

    __slots__ = ("_of_last", "_shape")

    def __init__(self) -> None:
        self._shape: Any = None
        self._of_last: Sizes = (0, 0, None)

    def of(self, batch: Any) -> Sizes:
        kind = type(batch)
        first = batch[0] if (kind is list or kind is tuple) and batch else batch
        shape = getattr(first, "shape", None)
        if shape is None or shape != self._shape:
            self._shape = shape
            self._of_last = (num_samples(batch), num_tokens(batch), first_shape(batch))
        return self._of_last


def first_shape(batch: Any, depth: int = 0) -> tuple[int, ...] | None:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return tuple(int(size) for size in shape)
    if depth > 2:
        return None
    if hasattr(batch, "values"):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch[:2]:
            found = first_shape(part, depth + 1)
            if found is not None:
                return found
    return None


def num_samples(batch: Any, depth: int = 0) -> int:
    """The first size of the first tensor in it; 0 where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    if depth > 2:
        return 0
    if hasattr(batch, "values"):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch[:4]:
            found = num_samples(part, depth + 1)
            if found:
                return found
    return 0


def num_tokens(batch: Any) -> int:
    """Of rows of whole numbers with a target for each number, as a language model learns from."""
    if hasattr(batch, "get") and hasattr(batch, "keys"):
        inputs, targets = batch.get("input_ids"), batch.get("labels")
    elif isinstance(batch, (list, tuple)) and len(batch) == 2:
        inputs, targets = batch
    else:
        return 0
    shape = getattr(inputs, "shape", None)
    if shape is None or len(shape) != 2 or getattr(targets, "shape", None) != shape:
        return 0
    is_whole = str(inputs.dtype) in _WHOLE_NUMBERS and str(targets.dtype) in _WHOLE_NUMBERS
    return int(shape[0]) * int(shape[1]) if is_whole else 0
