"""Acting on a module right after it was imported, without importing it oneself.

The loader's `exec_module` is replaced on the one loader object of that import and put back before
the module is used, so that nothing can be told from outside afterwards.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

Action = Callable[[Any], None]


class AfterImport:
    """A finder that finds nothing itself: it asks the others, and adds an action to the loader."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions
        self._asking: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in self._actions or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            return None
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            self._attach(spec.loader, self._actions[name])
        return spec

    @staticmethod
    def _attach(loader: Any, action: Action) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_then_act(module: Any) -> None:
            del loader.exec_module  # the class's own is back
            execute(module)
            act(action, module)

        try:
            loader.exec_module = execute_then_act
        except AttributeError:  # a loader that cannot be changed is left alone
            return


def act(action: Action, module: Any) -> None:
    try:
        action(module)
    except Exception as error:
        note_failure(f"{getattr(module, '__name__', module)}: {error!r}")


failures: list[str] = []
"""Hooks that could not be set; the run's record names them."""
_MOST_FAILURES = 20


def note_failure(text: str) -> None:
    if len(failures) < _MOST_FAILURES:
        failures.append(text)


def install(actions: dict[str, Action]) -> None:
    """Modules that are there already are acted on at once."""
    sys.meta_path.insert(0, AfterImport(actions))
    for name, action in actions.items():
        if name in sys.modules:
            act(action, sys.modules[name])
