"""torch's compiler stays out of processes that compile nothing.

torch imports it (with sympy, FSDP and distributed tensors: 900 modules, a second of processor time
and 100 MB per process) as soon as the first optimizer or DDP is built, in order to mark functions
as not to be compiled. A stand-in answers these few questions as the compiler itself would before
anything is compiled; whatever else is asked of it brings in the real one.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


class _StandIn(ModuleType):
    def __init__(self, name: str, known: dict[str, Any], load: Callable[[], Any]) -> None:
        super().__init__(name)
        self.__dict__.update(known, _load=load)

    def __getattr__(self, name: str) -> Any:
        # Who merely looks at all modules (inspect, warnings) asks for __file__ and the like;
        # __path__ is asked for by `import torch._dynamo.something`.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(self._load(), name)


def keep_compiler_out() -> None:
    """Until somebody needs it. Does nothing where it is there already."""
    if _COMPILER in sys.modules:
        return
    known = {
        "disable": _same_function,
        "graph_break": lambda *_, **__: None,
        "utils": _part("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        "trace_rules": _part("trace_rules", clear_lru_cache=lambda: None),
    }
    sys.modules[_COMPILER] = _StandIn(_COMPILER, known, _load_compiler)


def _part(name: str, **known: Any) -> _StandIn:
    return _StandIn(f"{_COMPILER}.{name}", known, lambda: getattr(_load_compiler(), name))


def _same_function(function: Any = None, *_: Any, **__: Any) -> Any:
    return (lambda given: given) if function is None else function


def _load_compiler() -> Any:
    if isinstance(sys.modules.get(_COMPILER), _StandIn):
        del sys.modules[_COMPILER]
    return importlib.import_module(_COMPILER)
