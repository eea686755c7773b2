"""How much a batch of a stranger's DataLoader holds, whatever it is made of."""

from typing import Any

_WHOLE_NUMBERS = ("torch.int64", "torch.int32")


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
