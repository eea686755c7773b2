"""Verbs that train, evaluate, and check whether training works here."""

import argparse
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, count, say

if TYPE_CHECKING:
    from paceline.cli.words import WorldSize
    from paceline.launch.batch.engines import Node
    from paceline.launch.batch.place import Place
    from paceline.launch.claim import Job
    from paceline.launch.starter import AgentStarter
    from paceline.machine.devices import Processes
    from paceline.settings import Recipe
    from paceline.strategies.roles import Roles


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
        "--roles",
        metavar="chief=1,worker=3,server=2",
        help="who is who, with strategy=parameter-server (default: a chief, a worker, a server)",
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
    from paceline.launch.batch.detect import find_place
    from paceline.launch.batch.engines import find_node, give_back
    from paceline.launch.batch.node import end_this_process
    from paceline.launch.batch.spot import watching_for_notice
    from paceline.terminal import outlive_terminal

    outlive_terminal()
    place = find_place(os.environ)
    if arguments.detach:
        return _train_detached(arguments)
    if arguments.hosts is not None:
        return _train_on_hosts(arguments)
    if place is not None:
        return _train_in_place(arguments, place)
    node = find_node(os.environ)
    with watching_for_notice(end_this_process, say):
        code = _train_here(arguments) if node is None else _train_on_node(arguments, node)
    if (node is None or node.rank == 0) and (said := give_back(os.environ, code)):
        say(said)
    return code


def _train_on_node(arguments: argparse.Namespace, node: "Node") -> int:
    """One host of several, where the engine has started this process alone."""
    from paceline.launch.batch.node import start_all

    _take_roles_of(node, arguments)
    job = _job(arguments, lambda recipe: node.count * _procs_on(arguments, node, recipe))
    if job is None:
        return 0
    if node.roles:
        return _train_in_place(arguments, node.place(0, 1), node.roles)
    num_procs = _procs_on(arguments, node, job.recipe)
    if node.rank == 0:
        say(
            f"{node.source} has started {node.count} hosts; on each of them "
            f"{num_procs} of {node.count * num_procs} processes"
        )
    if num_procs == 1:
        return _train_in_place(arguments, node.place(0, 1))
    return start_all(node, num_procs, sys.argv[1:])


def _take_roles_of(node: "Node", arguments: argparse.Namespace) -> None:
    """Who describes parameter servers wants them."""
    if not node.roles or any(word.startswith("strategy") for word in arguments.settings):
        return
    arguments.settings.append("strategy=parameter-server")
    if node.rank == 0:
        say(f"{node.source} names parameter servers: strategy=parameter-server")


def _procs_on(arguments: argparse.Namespace, node: "Node", recipe: "Recipe") -> int:
    """The same on all hosts, so what the engine says counts more than what is found here."""
    from paceline.machine.devices import choose_processes, num_visible_devices

    def num_micro_batches(num_procs: int) -> int:
        return recipe.batch.num_micro_batches(node.count * num_procs) // node.count

    told = None if recipe.device == "cpu" else node.num_procs
    asked = arguments.procs or told
    return choose_processes(asked, recipe.device, num_visible_devices(), num_micro_batches).count


def _train_here(arguments: argparse.Namespace) -> int:
    """Another process imports torch while this one reads the recipe and looks at the data."""
    from paceline.launch.starter import AgentStarter
    from paceline.machine.devices import num_visible_devices
    from paceline.machine.tuning import exact_environment, speed_environment

    likely = arguments.procs or max(1, num_visible_devices())
    with AgentStarter(str(_run_path(arguments)), speed_environment(likely)) as starter:
        from paceline.launch import local

        job = _job(arguments, lambda recipe: _choose_processes(arguments, recipe).count)
        if job is None:
            return 0
        _check_data(job)
        if job.recipe.strategy.has_servers:
            return _train_in_roles(arguments, job, starter)
        chosen = _choose_processes(arguments, job.recipe)
        if chosen.count != likely or (_uses_devices(job.recipe) and not arguments.procs):
            say(f"processes: {chosen.count} ({chosen.why})")
        exact = exact_environment(job.recipe.deterministic)
        starter.settle(speed_environment(chosen.count) | exact)
        return local.train(replace(job, num_procs=chosen.count), starter, say)


def _train_in_roles(arguments: argparse.Namespace, job: "Job", starter: "AgentStarter") -> int:
    from paceline.launch import local
    from paceline.machine.tuning import exact_environment, speed_environment

    roles = _roles_here(arguments, job.recipe)
    say(f"roles: {roles.in_words()}")
    exact = exact_environment(job.recipe.deterministic)
    starter.settle(speed_environment(len(roles.trainers)) | exact)
    return local.train(replace(job, num_procs=roles.size, roles=roles), starter, say)


def _roles_here(arguments: argparse.Namespace, recipe: "Recipe") -> "Roles":
    """As asked for; else a server, and on a processor two who train, on devices one for each."""
    from paceline.machine.devices import num_visible_devices, refuse_more_than_devices
    from paceline.strategies.roles import default_members, make_roles, parse_roles

    if arguments.roles:
        roles = make_roles(recipe, parse_roles(arguments.roles))
        if _uses_devices(recipe):
            fewer = "name fewer workers in --roles"
            refuse_more_than_devices(len(roles.trainers), num_visible_devices(), fewer)
        return roles
    num_trainers = _choose_processes(arguments, recipe).count
    if not arguments.procs and not _uses_devices(recipe):
        num_trainers = 2
    return make_roles(recipe, default_members(num_trainers, recipe.strategy.chief_trains))


def _uses_devices(recipe: "Recipe") -> bool:
    from paceline.machine.devices import num_visible_devices

    return recipe.device != "cpu" and num_visible_devices() > 0


def _choose_processes(arguments: argparse.Namespace, recipe: "Recipe") -> "Processes":
    from paceline.machine.devices import choose_processes, num_visible_devices

    num_micro_batches = recipe.num_micro_batches
    return choose_processes(
        arguments.procs, recipe.device, num_visible_devices(), num_micro_batches
    )


def _train_in_place(
    arguments: argparse.Namespace, place: "Place", members: tuple[str, ...] = ()
) -> int:
    from paceline.launch.batch.member import train_in_place

    job = _job(arguments, lambda _: place.size)
    if job is None:
        return 0
    roles = _roles_in_place(arguments, job.recipe, place, members)
    if roles is None or roles.by_rank[place.rank] != "server":
        _check_data(job)
    return train_in_place(replace(job, roles=roles), place, say)


def _roles_in_place(
    arguments: argparse.Namespace, recipe: "Recipe", place: "Place", members: tuple[str, ...]
) -> "Roles | None":
    """Of processes that somebody else has started, who may have said which is which."""
    from paceline.errors import UserError
    from paceline.strategies.roles import default_members, make_roles, parse_roles

    if not recipe.strategy.has_servers:
        if members:
            raise UserError(
                f"{place.source} names parameter servers, and this recipe's strategy is all-reduce",
                "leave strategy=all-reduce out, or ask for workers alone",
            )
        return None
    asked = parse_roles(arguments.roles) if arguments.roles else ()
    given = members or asked or default_members(place.size - 1, recipe.strategy.chief_trains)
    if len(given) != place.size:
        raise UserError(
            f"{place.source} has started {place.size} processes, and the roles name {len(given)}",
            "start as many processes as there are roles",
        )
    return make_roles(recipe, given)


def _train_on_hosts(arguments: argparse.Namespace) -> int:
    from paceline.hosts.file import load_hosts
    from paceline.launch.remote.campaign import run_on_hosts
    from paceline.launch.remote.program import Training

    job = _job(arguments, lambda _: None)
    if job is None:
        return 0
    job = replace(job, num_procs=arguments.procs or 0)
    return run_on_hosts(Training(job, arguments.roles), load_hosts(arguments.hosts), say)


def _train_detached(arguments: argparse.Namespace) -> int:
    """A mistake in the recipe, or that nothing is left to do, is told here and now."""
    from paceline.launch import jobs

    hosts_decide = arguments.hosts is not None
    job = _job(arguments, lambda r: None if hosts_decide else _choose_processes(arguments, r).count)
    if job is None:
        return 0
    if job.recipe.strategy.has_servers and not hosts_decide:
        _roles_here(arguments, job.recipe)
    words = [word for word in sys.argv[1:] if word != "--detach"]
    return jobs.detach(words, job.run, say)


def _run_path(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.run or Path("runs") / Path(arguments.recipe).stem
    return path.absolute() if arguments.hosts is not None else path


def _job(arguments: argparse.Namespace, world_size: "WorldSize") -> "Job | None":
    """None where nothing is left to train, which is said then."""
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.launch.claim import Job
    from paceline.launch.going_on import is_finished
    from paceline.record.schema import RunDirectory

    settings = understand(arguments.recipe, arguments.settings, world_size, say)
    loaded = recipe.load(arguments.recipe, settings)
    command = shlex.join(["paceline", *sys.argv[1:]])
    _refuse_roles(arguments, loaded)
    job = Job(loaded, RunDirectory(_run_path(arguments)), 0, command)
    return None if is_finished(job, say) else job


def _refuse_roles(arguments: argparse.Namespace, recipe: "Recipe") -> None:
    from paceline.errors import UserError

    if arguments.roles and not recipe.strategy.has_servers:
        raise UserError(
            "--roles are those of parameter servers, and this recipe's strategy is all-reduce",
            "add strategy=parameter-server, or leave --roles out",
        )


def _check_data(job: "Job") -> None:
    from paceline.task_finder import find_task

    find_task(job.recipe.workload).check_data(job.recipe)


def evaluate_run(arguments: argparse.Namespace) -> int:
    from paceline.machine.alone import run_alone
    from paceline.machine.tuning import exact_environment
    from paceline.recipe import read_settings
    from paceline.record.directory import require_run
    from paceline.record.schema import RunDirectory

    require_run(arguments.run)
    form = "json" if arguments.json else "text"
    words = [str(arguments.run), arguments.checkpoint, arguments.split, form]
    settings = read_settings(RunDirectory(arguments.run).recipe)
    exact = exact_environment(settings.get("deterministic") is True)
    return run_alone("paceline.train.measure.evaluator", words, variables=exact)


def add_selftest(verbs: Verbs) -> None:
    selftest = verbs.add_parser(
        "selftest", help="does training work here? A page for a bug report; the first on a new GPU"
    )
    selftest.add_argument("--quick", action="store_true", help="the most telling checks only")
    selftest.add_argument("--json", action="store_true", help="for programs")
    selftest.add_argument(
        "--device", default="auto", help="auto (default), cpu or cuda: where to check"
    )
    selftest.set_defaults(call=run_selftest)


def run_selftest(arguments: argparse.Namespace) -> int:
    from paceline.machine.alone import run_alone
    from paceline.machine.tuning import exact_environment

    say("checking: this takes minutes, and leaves nothing behind")
    form, extent = "json" if arguments.json else "text", "quick" if arguments.quick else "all"
    words = [form, extent, arguments.device]
    return run_alone("paceline.selftest", words, variables=exact_environment(True))
