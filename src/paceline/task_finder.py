"""From a task's name to its front page: a folder in `tasks/` is a task, `package.module:Class` is
one of the user's.

Neither this module nor a front page (the `__init__.py` of a task's folder) imports torch or
pydantic, so that the command line answers at once.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.tasks.contract import TaskKind
    from paceline.units import Scale

_ROOM = "paceline.tasks"


@cache
def task_names() -> tuple[str, ...]:
    folders = pkgutil.iter_modules(importlib.import_module(_ROOM).__path__)
    return tuple(sorted(entry.name for entry in folders if entry.ispkg))


@cache
def find_task(name: str) -> "TaskKind":
    """The front page of one of `task_names()`, or of a class of the user's."""
    kind: TaskKind
    if ":" in name:  # `project.is_own`, which takes longer to import than to answer
        kind = importlib.import_module(f"{_ROOM}.own").find_own_task(name)
    else:
        kind = importlib.import_module(f"{_ROOM}.{name}").KIND
    return kind


def scales_of(task: object) -> "Mapping[str, Scale]":
    """How the scores of a run are written, for readers: they never import a user's code."""
    return find_task(str(task)).score_scales if task in task_names() else {}
