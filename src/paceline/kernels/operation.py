"""What all kernels share as operations of torch: registration, whether they are used, checks.

Whether a kernel can be had is found out once; whether it is wanted may change, because all
processes of a run have to compute alike. No arithmetic lives here.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from paceline.kernels import build

Operation = Callable[..., Any]

LONGEST_ROW = 2048
"""The C sources' LONGEST: more channels than this are left to torch."""

# By hand, because `torch.library.custom_op` and `register_autograd` take 15 to 30 microseconds more
# for a call and its backward, and the step of a small Transformer has dozens of them.
_LIBRARY: Any = torch.library.Library("paceline", "DEF")  # type: ignore[no-untyped-call]
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

_is_off = False
_running: dict[str, ctypes.CDLL] = {}


def define(schema: str, run: Operation, fake: Operation) -> Operation:
    """An operation `torch.ops.paceline.NAME` of CPUs; `fake` makes results without values.

    What is returned calls it, or `run` itself where only the values matter."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=_TAGS)
    _LIBRARY.impl(name, run, "CPU")
    torch.library.register_fake(f"paceline::{name}", fake, lib=_LIBRARY)
    operation = _packet(name).default

    def call(*inputs: Any) -> Any:
        return run(*inputs) if _is_plain(inputs[0]) else operation(*inputs)

    return call


def differentiate(name: str, run: Operation, keep: Operation, backward: Operation) -> Operation:
    """The operation of that name with a gradient, to be called instead of what `define` gave.

    `keep(ctx, inputs, output)` says what `backward(ctx, *gradients)` wants to see again."""
    operation = _packet(name).default

    def forward(ctx: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = operation(*inputs)
        keep(ctx, inputs, output)
        return output

    def forward_of_values(ctx: Any, *inputs: Any) -> Any:
        output = run(*inputs)
        keep(ctx, inputs, output)
        return output

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return backward(ctx, *gradients)

    refuse_second = once_differentiable(run_backward)

    def first_derivative(ctx: Any, *gradients: Any) -> Any:
        how = refuse_second if torch.is_grad_enabled() else run_backward
        return how(ctx, *gradients)

    dispatched = _function(f"paceline_{name}", forward, first_derivative)
    direct = _function(f"paceline_{name}", forward_of_values, first_derivative)
    _LIBRARY.impl(name, dispatched.apply, "Autograd")

    def call(*inputs: Any) -> Any:
        return direct.apply(*inputs) if _is_plain(inputs[0]) else operation(*inputs)

    return call


def _function(name: str, forward: Operation, backward: Operation) -> Any:
    both = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), both)


def _is_plain(x: Tensor) -> bool:
    """Whether nobody looks on: no compiler, no counter of operations, no tensor without values.

    Then the way through torch's dispatcher, 40 microseconds there and back for each of hundreds of
    calls in a step, changes nothing."""
    return (
        type(x) is Tensor
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
    )


def count_as(name: str, formula: Callable[..., int]) -> None:
    """What FLOP counters add for a call: what the definition takes, however it is computed."""
    register_flop_formula(_packet(name))(formula)


def _packet(name: str) -> Any:
    return getattr(torch.ops.paceline, name)


def turn_off() -> None:
    """Use torch's own operations from now on, as other processes of the run have to."""
    global _is_off  # noqa: PLW0603
    _is_off = True


@contextmanager
def turned_off() -> Iterator[None]:
    """Torch's own operations for a while: for whoever compares the two."""
    global _is_off  # noqa: PLW0603
    before, _is_off = _is_off, True
    try:
        yield
    finally:
        _is_off = before


def is_used(name: str) -> bool:
    return not _is_off and _is_there(name)


def _is_there(name: str) -> bool:
    """A constant for `torch.compile`, which cannot look into finding and running a compiler."""
    return build.library(name) is not None


# All that torch.compiler.assume_constant_result does, without the second that importing torch's
# compiler takes, in processes that compile nothing.
_is_there._dynamo_marked_constant = True  # type: ignore[attr-defined]


def running(name: str, declare: Callable[[ctypes.CDLL], None]) -> ctypes.CDLL:
    """The library for an operation that is about to call it; `declare` names argument types."""
    if name not in _running:
        found = build.library(name)
        if found is None:
            raise RuntimeError(f"torch.ops.paceline: {build.problem(name)}")
        declare(found)
        _running[name] = found
    return _running[name]


def has_run(name: str) -> bool:
    return name in _running


def is_usual(x: Tensor) -> bool:
    """Whether these activations are of the kind that the kernels are written for."""
    return (
        x.device.type == "cpu"
        and x.dtype is torch.float32
        and x.shape[1] <= LONGEST_ROW
        and x.numel() > 0
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def require(is_right: bool, what: str, *shapes: torch.Size) -> None:
    """The C sources trust their callers, and a graph that was stored may have another one.

    `shapes` end the complaint; put into words only then, because that takes as long as looking."""
    if not is_right:
        told = " with ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"torch.ops.paceline: {what} {told}".rstrip())


def are_floats(*tensors: Tensor | None) -> bool:
    return all(tensor is None or tensor.dtype is torch.float32 for tensor in tensors)


def laid_out(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def addresses_of_rows(matrix: Tensor) -> range:
    """Of a contiguous one that is not empty. A tensor for every row would take longer than some
    kernels do."""
    first, num_bytes = matrix.data_ptr(), matrix.nbytes
    return range(first, first + num_bytes, num_bytes // matrix.shape[0])
