"""Verbs that train and evaluate."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, count, say

if TYPE_CHECKING:
    from paceline.launch.batch.place import Place
    from paceline.launch.claim import Job


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
    evaluate.set_defaults(call=evaluate_run)


def train_run(arguments: argparse.Namespace) -> int:
    if arguments.detach:
        return _train_detached(arguments)
    if arguments.hosts is not None:
        return _train_on_hosts(arguments)
    from paceline.launch.batch.detect import find_place

    place = find_place(os.environ)
    return _train_here(arguments) if place is None else _train_in_place(arguments, place)


def _train_here(arguments: argparse.Namespace) -> int:
    """Another process imports torch while this one reads the recipe and looks at the data."""
    from paceline.launch.starter import AgentStarter
    from paceline.machine.devices import num_procs_here
    from paceline.machine.tuning import speed_environment

    num_procs = arguments.procs or num_procs_here()
    with AgentStarter(str(_run_path(arguments)), speed_environment(num_procs)) as starter:
        from paceline.launch import local

        job = _job(arguments, num_procs)
        _check_data(job)
        return local.train(job, starter, say)


def _train_in_place(arguments: argparse.Namespace, place: "Place") -> int:
    from paceline.launch.batch.member import train_in_place

    job = _job(arguments, num_procs=0)
    _check_data(job)
    return train_in_place(job, place, say)


def _train_on_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.launch.remote import campaign as remote

    job = _job(arguments, arguments.procs or 0)
    return remote.train_on_hosts(job, load_hosts(arguments.hosts), say)


def _train_detached(arguments: argparse.Namespace) -> int:
    from paceline.launch import jobs

    job = _job(arguments, num_procs=0)  # a mistake in the recipe is told here and now
    words = [word for word in sys.argv[1:] if word != "--detach"]
    return jobs.detach(words, job.run, say)


def _run_path(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.run or Path("runs") / Path(arguments.recipe).stem
    return path.absolute() if arguments.hosts is not None else path


def _job(arguments: argparse.Namespace, num_procs: int) -> "Job":
    from paceline import recipe
    from paceline.launch.claim import Job
    from paceline.record.schema import RunDirectory

    loaded = recipe.load(arguments.recipe, arguments.settings)
    command = shlex.join(["paceline", *sys.argv[1:]])
    return Job(loaded, RunDirectory(_run_path(arguments)), num_procs, command)


def _check_data(job: "Job") -> None:
    from paceline.task_finder import find_task

    find_task(job.recipe.workload).check_data(job.recipe)


def evaluate_run(arguments: argparse.Namespace) -> int:
    from paceline.machine.alone import run_alone
    from paceline.record.directory import require_run

    require_run(arguments.run)
    where = [str(arguments.run), arguments.checkpoint, arguments.split]
    return run_alone("paceline.train.measure.evaluator", where)
