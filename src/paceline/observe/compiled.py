"""Scripts that compile: torch's compiler traces whatever Python it meets, and must not meet this.

A hook that is reached while a graph is traced calls the original alone, so that the graph is the
one that it is without the observer. Where a compiled function breaks off into plain Python, its
frames are offered to the compiler one by one: those of the observer are marked to be left alone.
"""

import importlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

is_compiling: Any = bool
"""Of a script that compiles, `torch.compiler.is_compiling`: the compiler knows that very function.
Others hardly pay for it, because hooks ask in every step: `bool()` is False."""


def leave_observer_alone() -> None:
    """Called when the script begins to compile; torch's compiler takes seconds to import."""
    global is_compiling  # noqa: PLW0603
    if is_compiling is not bool:
        return
    is_compiling = sys.modules["torch"].compiler.is_compiling
    skip_code = importlib.import_module("torch._dynamo.eval_frame").skip_code
    for code in _own_codes():
        skip_code(code)


def _own_codes() -> Iterator[CodeType]:
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            yield from _codes_of(module)


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    own = [value for value in vars(module).values() if _is_of(value, module)]
    classes = [value for value in own if isinstance(value, type)]
    members = [member for one in classes for member in vars(one).values()]
    for value in [*own, *members]:
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        while isinstance(function, FunctionType):
            yield from _with_inner(function.__code__)
            function = getattr(function, "__wrapped__", None)


def _is_of(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """And of the functions that are made inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
