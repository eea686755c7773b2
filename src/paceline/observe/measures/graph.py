"""What a backward pass is about to do, read from autograd's graph: floating-point operations, and
how many targets the loss has. The graph is only looked at, so nothing is computed or changed.

Matrix multiplications, convolutions and attention are counted, as torch's own counter does. What is
inside a compiled function or is computed again in backward cannot be seen: then nothing is told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

_MOST_NODES = 50_000
_OPAQUE = ("CompiledFunction", "CheckpointFunction", "Rnn")
"""In the name of a node that hides multiplications."""
_LOSS_DEPTH = 4
"""How far below what backward is called on the loss function lies: a mean, a division, a sum."""


@dataclass(frozen=True)
class Work:
    flops: float | None
    """Of forward and backward; None where some of it cannot be seen."""
    num_embedded: int
    """Tokens that were looked up in the largest embedding."""


def work_of(loss: Any) -> Work:
    """Walks the whole graph: for once, not for each step."""
    flops, num_embedded, is_whole = 0.0, 0, True
    seen, waiting = set(), [getattr(loss, "grad_fn", None)]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        name = node.name()
        if len(seen) > _MOST_NODES or any(word in name for word in _OPAQUE):
            is_whole = False
            break
        if name.startswith("EmbeddingBackward"):
            num_embedded = max(num_embedded, node._saved_indices.numel())
        count = _counter_of(name)
        if count is not None:
            flops += count(node)
    return Work(flops if is_whole and flops else None, num_embedded)


def num_targets(loss: Any) -> int:
    """Of a cross entropy; 0 where the loss is another, or hidden."""
    level = [getattr(loss, "grad_fn", None)]
    for _ in range(_LOSS_DEPTH):
        for node in level:
            if node is not None and node.name().startswith("NllLoss"):
                return int(node._saved_target.numel())
        level = [below for node in level if node is not None for below, _ in node.next_functions]
    return 0


def _counter_of(name: str) -> Callable[[Any], float] | None:
    for start, count in _COUNTERS.items():
        if name.startswith(start):
            return count
    return None


def _out_shape(node: Any) -> tuple[int, ...]:
    return tuple(node._input_metadata[0].shape)


def _passes(node: Any, *places: int) -> int:
    """Forward, and backward for each of these inputs that gets a gradient."""
    inputs = node.next_functions
    return 1 + sum(inputs[place][0] is not None for place in places)


def _matrix_product(node: Any, first: str, second: str, places: tuple[int, int]) -> float:
    """Only the sizes of inputs that the other's gradient asks for are kept."""
    rows, columns = _out_shape(node)[-2:]
    left = getattr(node, f"_saved_{first}_sym_sizes")
    inner = left[-1] if left else getattr(node, f"_saved_{second}_sym_sizes")[-2]
    return 2.0 * float(rows * columns * inner) * _passes(node, *places)


def _mm(node: Any) -> float:
    return _matrix_product(node, "self", "mat2", (0, 1))


def _addmm(node: Any) -> float:
    return _matrix_product(node, "mat1", "mat2", (1, 2))


def _batched_product(node: Any, first: str, second: str, places: tuple[int, int]) -> float:
    left = getattr(node, f"_saved_{first}")
    inner = left.shape[-1] if left is not None else getattr(node, f"_saved_{second}").shape[-2]
    return 2.0 * float(prod(_out_shape(node)) * inner) * _passes(node, *places)


def _bmm(node: Any) -> float:
    return _batched_product(node, "self", "mat2", (0, 1))


def _baddbmm(node: Any) -> float:
    return _batched_product(node, "batch1", "batch2", (1, 2))


def _convolution(node: Any) -> float:
    weight = node._saved_weight.shape
    of = node._saved_input.shape if node._saved_transposed else _out_shape(node)
    return 2.0 * float(of[0] * prod(of[2:]) * prod(weight)) * _passes(node, 0, 1)


def _attention(node: Any) -> float:
    """Two products in forward, and five in backward, one of which computes the scores again."""
    query, key, value = node._saved_query.shape, node._saved_key.shape, node._saved_value.shape
    scores = prod(query[:-1]) * key[-2]
    return 2.0 * float(scores * (4 * query[-1] + 3 * value[-1]))


_COUNTERS: dict[str, Callable[[Any], float]] = {
    "MmBackward": _mm,
    "AddmmBackward": _addmm,
    "BmmBackward": _bmm,
    "BaddbmmBackward": _baddbmm,
    "ConvolutionBackward": _convolution,
    "ScaledDotProduct": _attention,
}
