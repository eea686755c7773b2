"""Paceline trains one model on one machine or many, and tells where the time went.

    import paceline

    class Digits(paceline.SampleTask): ...           # a task of your own: docs/own-task.md
    run = paceline.train("digits.yaml", steps=200)   # train it; in a notebook, too
    run.report()                                     # where the time went

Names are imported when they are used: `import paceline` itself takes no time, and no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from paceline.api.run import Run, compare
    from paceline.api.run import open_run as open
    from paceline.api.training import train
    from paceline.config import setting
    from paceline.errors import UserError
    from paceline.tasks.contract import Scores, Task
    from paceline.tasks.samples import SampleTask
    from paceline.tasks.samples import TaskSettings as Settings
    from paceline.tasks.scoring import ScoreBatches
    from paceline.tasks.stream import Samples

_HOME = {
    "train": "api.training:train",
    "open": "api.run:open_run",
    "compare": "api.run:compare",
    "Run": "api.run:Run",
    "Task": "tasks.contract:Task",
    "SampleTask": "tasks.samples:SampleTask",
    "Settings": "tasks.samples:TaskSettings",
    "setting": "config:setting",
    "Scores": "tasks.contract:Scores",
    "ScoreBatches": "tasks.scoring:ScoreBatches",
    "Samples": "tasks.stream:Samples",
    "UserError": "errors:UserError",
}
__all__ = [
    "Run",
    "SampleTask",
    "Samples",
    "ScoreBatches",
    "Scores",
    "Settings",
    "Task",
    "UserError",
    "compare",
    "open",
    "setting",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'paceline' has no attribute '{name}'")
    module, _, inner = _HOME[name].partition(":")
    value = getattr(importlib.import_module(f"paceline.{module}"), inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
