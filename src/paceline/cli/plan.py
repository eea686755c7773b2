"""The verb that tells what training will take on other machines."""

import argparse
from pathlib import Path

from paceline.arguments import Verbs


def add_plan(verbs: Verbs) -> None:
    plan = verbs.add_parser("plan", help="what training will take on other machines")
    plan.add_argument(
        "--from",
        dest="run",
        type=Path,
        required=True,
        metavar="RUN",
        help="a run, or another tool's log, of the same training",
    )
    plan.add_argument("--hosts", default="1,2,4,8", help="numbers of hosts, like 1,2,4,8")
    plan.add_argument("--devices", type=int, help="processes on each host (default: as the run)")
    plan.add_argument("--network", help="speed of the hosts' links, like 1Gbit")
    plan.add_argument("--link", help="speed of the links that the run had, if it does not tell")
    plan.add_argument("--type", help="a machine to rent, like g4dn.2xlarge: its link and devices")
    plan.add_argument("--gradients", help="bytes that a step exchanges, like 243MB, if not known")
    plan.add_argument("--price", type=float, help="price of a host for an hour")
    plan.add_argument("--json", action="store_true", help="print JSON")
    plan.add_argument("--html", type=Path, metavar="FILE", help="write a page with a plot")
    plan.set_defaults(call=print_plan)


def print_plan(arguments: argparse.Namespace) -> int:
    from paceline.plan.plan import Question, plan_from
    from paceline.plan.render import as_html, as_json, as_text
    from paceline.record.writer import write_file
    from paceline.terminal import printable
    from paceline.units import parse_bytes, parse_link_speed

    question = Question(
        hosts=host_numbers(arguments.hosts),
        devices=arguments.devices,
        bits_per_second=parse_link_speed(arguments.network) if arguments.network else None,
        link_then=parse_link_speed(arguments.link) if arguments.link else None,
        gradient_bytes=parse_bytes(arguments.gradients) if arguments.gradients else None,
        price_per_hour=arguments.price,
        type_name=arguments.type,
    )
    found = plan_from(arguments.run, question)
    if arguments.html:
        write_file(arguments.html, printable(as_html(found)))
    print(printable(as_json(found) if arguments.json else as_text(found)).rstrip("\n"))
    return 0


def host_numbers(text: str) -> tuple[int, ...]:
    from paceline.errors import UserError

    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--hosts {text} is not a list of numbers of hosts", "like --hosts 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))
