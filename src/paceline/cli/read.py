"""Verbs that read a run directory."""

import argparse
import sys
from pathlib import Path

from paceline.cli.parser import Verbs, say


def add_readers(verbs: Verbs) -> None:
    report = verbs.add_parser("report", help="where the time went, and what came of it")
    report.add_argument("run", type=Path)
    report.add_argument("--lines", type=int, help="only the first lines")
    report.set_defaults(call=report_run)
    log = verbs.add_parser("log", help="the curves of a run as a table")
    log.add_argument("run", type=Path)
    log.add_argument("--csv", action="store_true", help="comma separated values (the default)")
    log.set_defaults(call=log_run)
    checkpoint = verbs.add_parser("checkpoint", help="what a checkpoint holds")
    checkpoint.add_argument("run", type=Path)
    checkpoint.add_argument("--checkpoint", default="newest", metavar="newest|best|STEP")
    checkpoint.set_defaults(call=checkpoint_run)


def report_run(arguments: argparse.Namespace) -> int:
    from paceline.report.render_text import render
    from paceline.report.summary import summarise

    lines = render(summarise(arguments.run)).splitlines()
    print("\n".join(lines[: arguments.lines]))
    return 0


def log_run(arguments: argparse.Namespace) -> int:
    from paceline.report.table import write_csv

    write_csv(arguments.run, sys.stdout)
    return 0


def checkpoint_run(arguments: argparse.Namespace) -> int:
    from paceline.record.checkpoints import choose
    from paceline.record.reader import require_run
    from paceline.report.render_checkpoint import render

    require_run(arguments.run)
    print(render(choose(arguments.run, arguments.checkpoint, say)))
    return 0
