"""The verb that checks this machine with the whole way of a training."""

import argparse

from paceline.arguments import Verbs, say


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

    say("checking: this takes minutes, and leaves nothing behind")
    form, extent = "json" if arguments.json else "text", "quick" if arguments.quick else "all"
    return run_alone("paceline.selftest", [form, extent, arguments.device])
