"""How much memory a device needs for a recipe, before anything runs on it.

What the state takes is reckoned. What a forward pass keeps for its backward is measured: torch
tells every tensor that it saves, and on the `meta` device, where tensors have a size and no
values, a whole micro-batch costs nothing. A task that cannot run there (one that reads values)
runs on the processor with two small micro-batches, from which the whole one follows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from paceline.errors import UserError
from paceline.settings import STATES_PER_WEIGHT, Recipe
from paceline.tasks.passes import one_pass
from paceline.units import format_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

_BYTES_PER_FP32: Final = 4
_OF_CUDA_ITSELF: Final = 0.6e9
"""The driver's context, workspaces of cuBLAS and cuDNN, NCCL's buffers: 0.4 to 0.8 GB."""
_GRADIENTS_IN_FLIGHT: Final = 2
"""Backward holds the gradient that came in and the one that goes out."""
_TRIED_IN_16_BITS: Final = 32
"""The part of a micro-batch with which the share of 16 bits is measured, on the processor."""
_PARTS: Final = (4, 2)
"""Of a micro-batch, where it is measured on the processor."""
_COMMON_SIZES: Final = (4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)
"""Gigabytes that cards are sold with."""


@dataclass(frozen=True)
class Saved:
    """What a forward pass keeps for its backward."""

    num_bytes: float
    largest_bytes: float


@dataclass(frozen=True)
class Memory:
    """Of one process on one device, in bytes."""

    state: float
    """Weights, gradients, what the optimizer remembers, and the average where there is one."""
    saved: Saved
    """In fp32."""
    num_parameters: int
    micro: int
    share_in_16_bits: float = 1.0
    """Of what fp32 keeps: half for pictures, most for a Transformer, whose sums stay in fp32."""

    def total(self, precision: str) -> float:
        """In 16 bits autocast also keeps a copy of the weights."""
        in_fp32 = precision == "fp32"
        share = 1.0 if in_fp32 else self.share_in_16_bits
        copies = 0.0 if in_fp32 else self.num_parameters * _BYTES_PER_FP32 / 2
        passes = self.saved.num_bytes + _GRADIENTS_IN_FLIGHT * self.saved.largest_bytes
        return self.state + copies + share * passes + _OF_CUDA_ITSELF

    def micro_that_fits(self, device_bytes: float, precision: str) -> int | None:
        """The half, the quarter ... of the micro-batch with which it does; None where none does."""
        micro, smaller = self.micro, self
        while micro > 1 and smaller.total(precision) > device_bytes:
            micro //= 2
            part = micro / self.micro
            saved = Saved(self.saved.num_bytes * part, self.saved.largest_bytes * part)
            smaller = replace(self, saved=saved, micro=micro)
        return micro if smaller.total(precision) <= device_bytes else None


def estimate_memory(recipe: Recipe) -> Memory | None:
    """None where only data could tell what a micro-batch is, and none is here."""
    import torch  # noqa: PLC0415  (takes seconds)

    try:
        saved, num_parameters = _measure(recipe, torch.device("meta"))
    except UserError:
        return None
    except (NotImplementedError, RuntimeError):  # it reads values
        saved, num_parameters = _extrapolated(recipe)
    optimizer = recipe.optimizer
    copies = 2 + STATES_PER_WEIGHT[optimizer.kind] + (optimizer.average > 0)
    kept = copies + recipe.reduce.remembered_copies
    state = float(_BYTES_PER_FP32 * num_parameters * kept)
    share = measure_share_in_16_bits(recipe)
    return Memory(state, saved, num_parameters, recipe.batch.micro_size, share)


def _measure(
    recipe: Recipe, device: "torch.device", number_type: "torch.dtype | None" = None
) -> tuple[Saved, int]:
    import torch  # noqa: PLC0415

    found = one_pass(recipe, device)
    if found is None:
        raise UserError("what a micro-batch is, only the data tells", "prepare it first")
    network = found.network
    num_parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
    with torch.autocast("cpu", dtype=number_type, enabled=number_type is not None):
        return saved_by(found.loss, network), num_parameters


def torch_cpu() -> "torch.device":
    import torch  # noqa: PLC0415

    return torch.device("cpu")


def measure_share_in_16_bits(recipe: Recipe) -> float:
    """What autocast keeps of a small micro-batch, without its copies of the weights, against fp32:
    on the processor, whose lists of what is cast are nearly those of CUDA."""
    import torch  # noqa: PLC0415

    cpu, micro = torch_cpu(), max(recipe.batch.micro_size // _TRIED_IN_16_BITS, 1)
    small = _with_micro(recipe, micro)
    with _torch_alone():
        full, num_parameters = _measure(small, cpu)
        half, _ = _measure(small, cpu, torch.bfloat16)
    copies = num_parameters * _BYTES_PER_FP32 / 2
    return min(max((half.num_bytes - copies) / max(full.num_bytes, 1.0), 0.5), 1.0)


@contextmanager
def _torch_alone() -> Iterator[None]:
    """Torch's own operations, which are those of a device, and one thread: more would spin for
    each other beside other work."""
    import torch  # noqa: PLC0415

    from paceline.kernels.operation import turned_off  # noqa: PLC0415  (imports torch)

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with turned_off():
            yield
    finally:
        torch.set_num_threads(num_threads)


def saved_by(forward: "Callable[[], torch.Tensor]", network: "nn.Module") -> Saved:
    """Every storage once, however many views of it are kept; weights are counted elsewhere."""
    import torch  # noqa: PLC0415

    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()
    for weight in network.parameters():
        kept.pop(weight.untyped_storage()._cdata, None)
    sizes = [storage.nbytes() for storage in kept.values()]
    del loss
    return Saved(float(sum(sizes)), float(max(sizes, default=0)))


def _extrapolated(recipe: Recipe) -> tuple[Saved, int]:
    """A straight line through two small micro-batches."""

    whole = recipe.batch.micro_size
    sizes = [max(whole // part, 1) for part in _PARTS]
    with _torch_alone():
        found = [_measure(_with_micro(recipe, size), torch_cpu()) for size in sizes]
    (small, num_parameters), (large, _) = found
    step = max(sizes[1] - sizes[0], 1)

    def at_whole(one: float, other: float) -> float:
        return other + (other - one) / step * (whole - sizes[1])

    total = at_whole(small.num_bytes, large.num_bytes)
    return Saved(total, at_whole(small.largest_bytes, large.largest_bytes)), num_parameters


def _with_micro(recipe: Recipe, micro: int) -> Recipe:
    return recipe.model_copy(update={"batch": recipe.batch.model_copy(update={"micro": micro})})


def memory_in_words(memory: Memory | None) -> str:
    if memory is None:
        return "memory: not known here, because the recipe's data is not here: prepare it first"
    total = {name: memory.total(name) for name in ("fp32", "bf16")}
    return (
        f"memory of a device, estimated: {format_bytes(total['fp32'])} in fp32"
        f"{_card(total['fp32'])}, {format_bytes(total['bf16'])} in 16 bits{_card(total['bf16'])}; "
        f"of it {format_bytes(memory.state)} for weights, gradients and optimizer, and "
        f"{format_bytes(memory.saved.num_bytes)} (fp32) kept by a forward pass of {memory.micro}"
    )


def _card(num_bytes: float) -> str:
    """GiB, as cards are sold; nine tenths of one can be used without care."""
    fitting = [size for size in _COMMON_SIZES if num_bytes <= 0.9 * size * 2**30]
    return f" (a card with {fitting[0]} GB)" if fitting else " (more than a card has)"
