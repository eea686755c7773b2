"""From a name, a file or a run directory to a recipe, and what may change when a run goes on."""

import difflib
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from paceline import config
from paceline.errors import UserError
from paceline.project import FORM, is_own
from paceline.record.directory import read_script
from paceline.record.schema import RunDirectory
from paceline.settings import Recipe
from paceline.task_finder import find_task, task_names
from paceline.units import count_of


def shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("paceline") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)}


def load(name_or_path: str, overrides: list[str] | None = None) -> Recipe:
    """A shipped recipe by name, or any YAML file by path, with `name=value` laid over it.

    Paths in it are absolute from here on, because hosts and later commands are elsewhere.
    """
    document = config.with_overrides(config.read_document(_find(name_or_path)), overrides or [])
    workload = document.settings.get("workload")
    if str(workload) not in task_names() and not is_own(str(workload)):
        raise UserError(
            f"{document.name} names the workload {workload!r}, which does not exist",
            f"workload is one of: {', '.join(task_names())}; or a class of yours, {FORM}",
        )
    return _with_absolute_paths(config.validate(document, find_task(str(workload)).recipe_class))


def _with_absolute_paths(recipe: Recipe) -> Recipe:
    settings = config.dump(recipe)
    resolved = config.resolve_paths(settings, type(recipe), Path.cwd())
    return recipe if resolved == settings else type(recipe).model_validate(resolved)


def _find(name_or_path: str) -> Path:
    recipes = shipped()
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path:
        if path.is_file():
            return path
        raise UserError(f"there is no recipe file {path}", "check the path")
    close = difflib.get_close_matches(name_or_path, recipes, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UserError(
        f"there is no recipe '{name_or_path}'", f"{hint}`paceline recipes` lists what there is"
    )


def from_run(recipe_file: Path) -> Recipe:
    """The recipe that a run directory holds; the code of an own task is also looked for where it
    was when the run was trained."""
    root = _project_root(recipe_file.parent)
    if root is not None and root not in sys.path:
        sys.path.append(root)
    return load(str(recipe_file))


def _project_root(run: Path) -> str | None:
    try:
        told = json.loads((run / "environment.json").read_text(encoding="utf-8"))
        root = told["project"]["root"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return root if isinstance(root, str) and Path(root).is_dir() else None


def refuse_too_many_processes(recipe: Recipe, num_procs: int) -> None:
    """Every process of a world needs a micro-batch of each step."""
    num_micro = recipe.num_micro_batches(num_procs)
    if num_micro < num_procs:
        raise UserError(
            f"a step has {count_of(num_micro, 'micro-batch')}, too few for {num_procs} processes",
            "lower batch.micro, raise batch.global, or start fewer processes",
        )


def refuse_other_task(old: dict[str, Any], new: Recipe, run: Path) -> None:
    if old.get("workload") != new.workload:
        raise UserError(
            f"{run} is a run of another task: it trains {old.get('workload')}, and this recipe "
            f"trains {new.workload}",
            "name another --run for this recipe, or the recipe that the run was begun with",
        )


def refuse_meaningless_change(old: dict[str, Any], new: Recipe, run: Path) -> list[str]:
    """Raise if going on with `new` makes no sense; otherwise say what changed, one line each.

    Version 0.1.0 stored paths as they were typed, so they are compared as seen from here.
    """
    refuse_other_task(old, new, run)
    known = config.resolve_paths(config.with_defaults(old, type(new)), type(new), Path.cwd())
    changes = list(config.differences(known, config.dump(new)))
    fixed = set(config.fixed_names(type(new)))
    refused = [change for change in changes if change[0] in fixed]
    if refused:
        shown = "\n".join(f"  {name}: {before!r} -> {after!r}" for name, before, after in refused)
        raise UserError(
            f"{run} cannot go on with a recipe that differs in\n{shown}",
            "give the old values to go on, or another --run to begin anew",
        )
    return [
        f"{name}: {before!r} -> {after!r}" for name, before, after in changes if name != "about"
    ]


def settings_of_run(run: RunDirectory) -> dict[str, Any]:
    """What a run was trained with. A script that was observed has a name and nothing else."""
    if not run.is_observed:
        return read_settings(run.recipe)
    told = read_script(run)
    script = str(told.get("script", "script"))
    return {"workload": script if " " in script else Path(script).name, "script": told}


def read_settings(recipe_file: Path) -> dict[str, Any]:
    """A stored recipe as plain values, for readers that do not care whether they are valid."""
    try:
        settings = config.parse_yaml(recipe_file.read_text(encoding="utf-8")).settings
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {recipe_file}: {error}", "is this a run directory?"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"{recipe_file} holds no settings", "is this a run directory?")
    return settings
