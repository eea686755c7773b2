"""Verbs that train and evaluate."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, count, say

if TYPE_CHECKING:
    from paceline.machine.devices import Processes
    from paceline.settings import Recipe


def add_train(verbs: Verbs) -> None:
    train = verbs.add_parser("train", help="train, or go on with a run")
    train.add_argument("recipe", help="name, or path of a YAML file")
    train.add_argument(
        "settings", nargs="*", metavar="name=value", help="any setting of the recipe"
    )
    train.add_argument("--run", type=Path, help="run directory (default: runs/RECIPE)")
    train.add_argument(
        "--procs", type=count, help="processes per host (default: one per GPU; one on a CPU)"
    )
    train.add_argument(
        "--hosts", type=Path, metavar="FILE", help="train on the hosts of this file, over ssh"
    )
    train.add_argument(
        "--detach", action="store_true", help="live on without this terminal (see attach, stop)"
    )
    train.set_defaults(call=train_run)


def add_evaluate(verbs: Verbs) -> None:
    evaluate = verbs.add_parser("evaluate", help="scores of a checkpoint")
    evaluate.add_argument("run", type=Path)
    evaluate.add_argument(
        "--split", default="validation", help="validation (default), test or train"
    )
    evaluate.add_argument("--checkpoint", default="best", metavar="best|newest|STEP|average:K")
    evaluate.add_argument("--json", action="store_true", help="for programs: one line of JSON")
    evaluate.set_defaults(call=evaluate_run)


def train_run(arguments: argparse.Namespace) -> int:
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.launch import local
    from paceline.launch.batch.detect import find_place
    from paceline.launch.claim import Job
    from paceline.launch.going_on import is_finished
    from paceline.record.schema import RunDirectory
    from paceline.task_finder import find_task
    from paceline.terminal import outlive_terminal

    outlive_terminal()
    place = find_place(os.environ)

    def world_size(recipe: "Recipe") -> int | None:
        if arguments.hosts is not None:
            return None
        return place.size if place else _choose_processes(arguments, recipe).count

    settings = understand(arguments.recipe, arguments.settings, world_size, say)
    loaded = recipe.load(arguments.recipe, settings)
    path = arguments.run or Path("runs") / Path(arguments.recipe).stem
    command = shlex.join(["paceline", *sys.argv[1:]])
    if is_finished(Job(loaded, RunDirectory(path), 0, command), say):
        return 0
    if arguments.detach:
        from paceline.launch import jobs

        words = [word for word in sys.argv[1:] if word != "--detach"]
        return jobs.detach(words, RunDirectory(path), say)
    if arguments.hosts is not None:
        from paceline.hosts.file import load_hosts
        from paceline.launch.remote import campaign as remote

        job = Job(loaded, RunDirectory(path.absolute()), arguments.procs or 0, command)
        return remote.train_on_hosts(job, load_hosts(arguments.hosts), say)
    find_task(loaded.workload).check_data(loaded)
    if place is not None:
        from paceline.launch.batch.member import train_in_place

        return train_in_place(Job(loaded, RunDirectory(path), 0, command), place, say)
    chosen = _choose_processes(arguments, loaded)
    if not arguments.procs and loaded.device != "cpu" and chosen.why != "on the processor":
        say(f"processes: {chosen.count} ({chosen.why})")
    return local.train(Job(loaded, RunDirectory(path), chosen.count, command), say)


def _choose_processes(arguments: argparse.Namespace, recipe: "Recipe") -> "Processes":
    from paceline.machine.devices import choose_processes, num_visible_devices

    num_micro_batches = recipe.batch.num_micro_batches
    return choose_processes(
        arguments.procs, recipe.device, num_visible_devices(), num_micro_batches
    )


def evaluate_run(arguments: argparse.Namespace) -> int:
    from paceline.machine.alone import run_alone
    from paceline.record.directory import require_run

    require_run(arguments.run)
    form = "json" if arguments.json else "text"
    words = [str(arguments.run), arguments.checkpoint, arguments.split, form]
    return run_alone("paceline.train.measure.evaluator", words)
