"""A task of the user's: from a class to what the command line and launchers ask of a task."""

import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from paceline.config import Section, setting
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.project import FORM, import_class
from paceline.settings import InputSettings, Recipe
from paceline.tasks.contract import Task, TaskKind

if TYPE_CHECKING:
    import torch
    from torch import nn


class OwnRecipe(Recipe):
    """What the recipe of an own task has; its `Settings` are added."""

    data: str = setting(
        "",
        "given to `open`: a file, a directory, or a name under the data cache; empty is none",
        path="or here",
    )
    input: InputSettings = setting(InputSettings(), "reading ahead")


class OwnKind(TaskKind):
    def __init__(self, task: type[Task], name: str) -> None:
        self.task, self.name = task, name

    @cached_property
    def recipe_class(self) -> type[Recipe]:
        settings = getattr(self.task, "Settings", Section)
        if not (isinstance(settings, type) and issubclass(settings, Section)):
            raise UserError(
                f"{self.name}: Settings is no paceline.Settings",
                "write it as: class Settings(paceline.Settings):",
            )
        for field in settings.model_fields:
            if field in OwnRecipe.model_fields:
                raise UserError(
                    f"{self.name}: Settings.{field} hides the recipe's own setting '{field}'",
                    "give it another name",
                )
        about = {"__module__": self.task.__module__, "__doc__": self.task.__doc__}
        made: type[Recipe] = type(f"{self.task.__name__}Recipe", (settings, OwnRecipe), about)
        return made

    def open(self, recipe: Any, device: "torch.device") -> Task:
        self.check_data(recipe)
        return self.task(recipe, device)

    def build_network(self, recipe: Any) -> "nn.Module":
        """It may depend on the data (a vocabulary, classes), so that is opened."""
        import torch  # noqa: PLC0415  (takes seconds)

        with torch.device("cpu"):
            task = self.open(recipe, torch.device("cpu"))
        try:
            return task.build_model()
        except (NotImplementedError, RuntimeError):  # where a network needs its memory
            with torch.device("cpu"):
                return task.build_model()

    def check_data(self, recipe: Any) -> None:
        if recipe.data and not data_directory(recipe.data).exists():
            raise UserError(
                f"there is no data at {data_directory(recipe.data)}",
                "correct the setting 'data' (data=PATH)",
            )

    def micro_batches_per_epoch(self, recipe: Any) -> float:
        import torch  # noqa: PLC0415  (takes seconds)

        return 1 / self.open(recipe, torch.device("cpu")).epochs_at(1)

    def add_data_options(self, data: ArgumentParser) -> None:
        """Own tasks open their data themselves."""

    def prepare_data(self, arguments: Namespace, say: Callable[[str], None]) -> Path:
        raise UserError("an own task opens its data itself", "see `open` of your task")


def find_own_task(name: str) -> OwnKind:
    """The class that `package.module:Class` names, if it is a task that has all it needs."""
    found = import_class(name)
    if not inspect.isclass(found):
        _refuse(f"{name} is {type(found).__name__} {found!r:.40}, not a class")
    if not issubclass(found, Task):
        _refuse(f"{name} is not a task")
    if "<locals>" in found.__qualname__:
        _refuse(f"{name} is made inside a function, where the processes that train cannot find it")
    missing = [*sorted(found.__abstractmethods__), *_missing_names(found)]
    if missing:
        raise UserError(
            f"{name} has no {', '.join(missing)}",
            "write what is missing; docs/own-task.md has a task in full",
        )
    return OwnKind(found, name)


def _missing_names(task: type[Task]) -> list[str]:
    return [name for name in ("unit", "best_by") if not isinstance(getattr(task, name, None), str)]


def _refuse(what: str) -> Never:
    raise UserError(
        what, f"name a class that begins with `class X(paceline.SampleTask):`, as {FORM}"
    )
