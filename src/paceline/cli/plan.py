"""The verb that tells what training will take on other machines."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, say
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.hosts.file import HostsFile
    from paceline.plan.basis import Basis
    from paceline.settings import Recipe

_ABOUT = (
    "What a step and the whole training will take: from a run (--from), from trial steps on hosts "
    "(RECIPE --hosts hosts.yaml) or here (RECIPE), or before any (RECIPE --type TYPE)."
)
_USUAL_HOSTS = "1,2,4,8"


def add_plan(verbs: Verbs) -> None:
    plan = verbs.add_parser(
        "plan", help="what training will take on other machines", description=_ABOUT
    )
    plan.add_argument("recipe", nargs="?", help="name, or path of a YAML file")
    plan.add_argument("settings", nargs="*", metavar="name=value", help="any setting of the recipe")
    plan.add_argument(
        "--from",
        dest="run",
        type=Path,
        metavar="RUN",
        help="a run, or another tool's log, of the same training",
    )
    plan.add_argument(
        "--hosts", help=f"numbers of hosts (default: {_USUAL_HOSTS}), or a hosts file to look at"
    )
    plan.add_argument("--devices", type=int, help="processes on each host (default: as measured)")
    plan.add_argument("--network", help="speed of the hosts' links, like 1Gbit")
    plan.add_argument("--link", help="speed of the links that the run had, if it does not tell")
    plan.add_argument("--type", help="a machine to rent, like g4dn.2xlarge: its link and devices")
    plan.add_argument("--gradients", help="bytes that a step exchanges, like 243MB, if not known")
    plan.add_argument("--price", type=float, help="price of a host for an hour")
    plan.add_argument(
        "--same-batch",
        action="store_true",
        help="of a script or a log: more processes share a step's batch, which does not grow",
    )
    plan.add_argument(
        "--samples-growth",
        type=float,
        default=1.0,
        metavar="X",
        help="times the samples to the same quality when the batch doubles, like 1.1",
    )
    plan.add_argument("--json", action="store_true", help="print JSON (docs/model.md)")
    plan.add_argument("--html", type=Path, metavar="FILE", help="write a page with a plot")
    plan.set_defaults(call=print_plan)


def print_plan(arguments: argparse.Namespace) -> int:
    from paceline.plan.catalogue import find_instance
    from paceline.plan.page import as_html
    from paceline.plan.plan import Question, plan
    from paceline.plan.render import as_json, as_text
    from paceline.record.writer import write_file
    from paceline.terminal import printable
    from paceline.units import parse_link_speed

    hosts = _hosts_file(arguments)
    if arguments.type:
        find_instance(arguments.type)  # a mistake is told before torch counts anything
    basis = _basis(arguments, hosts)
    question = Question(
        hosts=sizes_up_to(len(hosts.hosts)) if hosts else host_numbers(arguments.hosts),
        devices=arguments.devices,
        bits_per_second=parse_link_speed(arguments.network) if arguments.network else None,
        price_per_hour=arguments.price,
        type_name=arguments.type,
        is_same_batch=arguments.same_batch,
        samples_growth=arguments.samples_growth,
    )
    found = plan(basis, question)
    if arguments.html:
        write_file(arguments.html, printable(as_html(found)))
        say(f"wrote {arguments.html}")
    print(printable(as_json(found) if arguments.json else as_text(found)).rstrip("\n"))
    return 0


def _hosts_file(arguments: argparse.Namespace) -> "HostsFile | None":
    from paceline.hosts.file import load_hosts

    named = arguments.hosts or ""
    if not named.endswith((".yaml", ".yml")) and "/" not in named:
        return None
    if arguments.run is not None:
        raise UserError(
            "a plan from a run wants numbers of hosts",
            "like --hosts 1,2,4; or name a recipe in place of --from to try it on those hosts",
        )
    return load_hosts(Path(named))


def _basis(arguments: argparse.Namespace, hosts: "HostsFile | None") -> "Basis":
    if (arguments.run is None) == (arguments.recipe is None):
        raise UserError(
            "a plan is made from a run or from a recipe, one of them",
            "paceline plan --from RUN ..., or paceline plan RECIPE --type g4dn.2xlarge ...",
        )
    if arguments.run is not None:
        return _of_run(arguments)
    recipe = _recipe(arguments)
    if hosts is None and arguments.type:
        return _counted(recipe, arguments.recipe)
    return _tried(recipe, arguments, hosts)


def _of_run(arguments: argparse.Namespace) -> "Basis":
    from paceline.plan.basis import basis_of_path
    from paceline.units import parse_bytes, parse_link_speed

    return basis_of_path(
        arguments.run,
        parse_link_speed(arguments.link) if arguments.link else None,
        parse_bytes(arguments.gradients) if arguments.gradients else None,
    )


def _recipe(arguments: argparse.Namespace) -> "Recipe":
    from paceline import recipe
    from paceline.cli.words import understand

    settings = understand(arguments.recipe, arguments.settings, lambda _: None, say)
    return recipe.load(arguments.recipe, settings)


def _counted(recipe: "Recipe", name: str) -> "Basis":
    from paceline.plan.basis import basis_of_recipe
    from paceline.train.measure.work import count_work

    say("counting the work of a step (torch takes some seconds)")
    return basis_of_recipe(recipe, Path(name).stem, count_work(recipe))


def _tried(recipe: "Recipe", arguments: argparse.Namespace, hosts: "HostsFile | None") -> "Basis":
    from paceline.launch.trial.basis import basis_at, basis_on_hosts
    from paceline.launch.trial.steps import Place
    from paceline.task_finder import find_task

    name = Path(arguments.recipe).stem
    if hosts is not None:
        return basis_on_hosts(recipe, name, hosts, say)
    find_task(recipe.workload).check_data(recipe)
    return basis_at(recipe, name, Place(None, arguments.devices), say)


def sizes_up_to(count: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, and all."""
    powers = [1 << power for power in range(count.bit_length()) if 1 << power <= count]
    return tuple(sorted({*powers, count}))


def host_numbers(text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or _USUAL_HOSTS).split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--hosts {text} is not a list of numbers of hosts", "like --hosts 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))
