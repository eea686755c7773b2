"""Verbs that prepare data and show recipes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, Verbs, say
from paceline.task_finder import find_task, task_names

if TYPE_CHECKING:
    from paceline.settings import Recipe


def add_data(verbs: Verbs) -> None:
    data = verbs.add_parser("data", help="prepare a data set for training")
    kinds = data.add_subparsers(dest="task", metavar="TASK", required=True, parser_class=Parser)
    for name in task_names():
        kind = kinds.add_parser(name, help=f"see `paceline data {name} --help`")
        kind.add_argument("--from", dest="source", required=True, metavar="web|stand-in|PATH")
        kind.add_argument("--to", type=Path, help="directory to write (default: the data cache)")
        find_task(name).add_data_options(kind)
    data.set_defaults(call=prepare_data)


def add_recipes(verbs: Verbs) -> None:
    recipes = verbs.add_parser("recipes", help="list recipes, or show one with every value")
    inner = recipes.add_subparsers(dest="action", metavar="show", parser_class=Parser)
    show = inner.add_parser("show", help="every value of a recipe, and what it means")
    show.add_argument("recipe", help="name, or path of a YAML file")
    show.add_argument("settings", nargs="*", metavar="name=value")
    show.add_argument(
        "--memory", action="store_true", help="also what it takes of a device (some seconds)"
    )
    recipes.set_defaults(call=list_recipes)
    show.set_defaults(call=show_recipe)


def prepare_data(arguments: argparse.Namespace) -> int:
    directory = find_task(arguments.task).prepare_data(arguments, say)
    say(_how_to_use(arguments.task, directory))
    print(directory)
    return 0


def _how_to_use(task: str, directory: Path) -> str:
    """The command that trains on it, and which recipes ask for it by themselves."""
    from paceline import recipe
    from paceline.data.places import name_of_data

    name = name_of_data(directory)
    asking, others = [], []
    for stem in recipe.shipped():
        loaded = recipe.load(stem)
        if loaded.workload != task:
            continue
        more = find_task(task).settings_for(loaded, directory)
        if loaded.data == name:
            asking.append(" ".join([stem, *more]))
        else:
            others.append(" ".join([stem, f"data={name}", *more]))
    lines = [f"use it: paceline train {each}" for each in (asking or others)[:1]]
    if len(asking) > 1:
        lines[0] += f"   (as well: {', '.join(asking[1:])})"
    rest = others if asking else others[1:]
    if rest:
        lines.append(f"use it with another recipe: paceline train {rest[0]}")
        stems = ", ".join(each.split()[0] for each in rest[1:])
        lines[-1] += f"   (or {stems})" if stems else ""
    return "\n".join(lines)


def list_recipes(_arguments: argparse.Namespace) -> int:
    from paceline import recipe

    for name in recipe.shipped():
        print(f"{name:<22} {recipe.load(name).about}")
    return 0


def show_recipe(arguments: argparse.Namespace) -> int:
    from paceline import config, recipe
    from paceline.cli.words import understand
    from paceline.schedule import batch_scale, in_words

    settings = understand(arguments.recipe, arguments.settings, lambda _: 1, say)
    loaded = recipe.load(arguments.recipe, settings)
    print(config.annotated_yaml(loaded))
    whole = loaded.batch.global_
    scale = batch_scale(loaded.schedule, whole) if whole else 1.0
    print(f"# learning rate: {in_words(loaded.schedule, loaded.steps, scale)}")
    from paceline.tasks.sizes import size_in_words

    print(f"# {size_in_words(loaded)}")
    if arguments.memory:
        _show_memory(loaded)
    return 0


def _show_memory(loaded: "Recipe") -> None:
    from paceline.doctor.devices import judge_memory
    from paceline.machine.devices import listed_cards
    from paceline.tasks.memory import estimate_memory, memory_in_words

    memory = estimate_memory(loaded)
    print(f"# {memory_in_words(memory)}")
    if memory is None:
        return
    here = {"here": {"torch_import": {"devices": listed_cards()}}}
    words = {"ok": "fits", "warn": "hardly fits", "fail": "does not fit"}
    for row in judge_memory(here, memory, loaded.precision):
        remedy = f": {row.remedy}" if row.remedy else ""
        print(f"# it {words[row.state]} the device here, {row.found}{remedy}")
