"""Verbs for runs that live on without a terminal."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, say

if TYPE_CHECKING:
    from paceline.launch.jobs import RunState

_STATE_COLOURS = {
    "training": "green",
    "stopped": "yellow",
    "interrupted": "yellow",
    "failed": "red",
}


def add_jobs(verbs: Verbs) -> None:
    attach = verbs.add_parser("attach", help="follow a run that was started with --detach")
    attach.add_argument("run", type=Path)
    attach.set_defaults(call=attach_run)
    stop = verbs.add_parser("stop", help="end a run everywhere, with a checkpoint")
    stop.add_argument("run", type=Path)
    stop.set_defaults(call=stop_run)
    runs = verbs.add_parser("runs", help="runs under ./runs and those started with --detach")
    runs.set_defaults(call=runs_list)


def attach_run(arguments: argparse.Namespace) -> int:
    from paceline.launch.jobs import attach

    try:
        return attach(arguments.run, _show_output, say)
    except KeyboardInterrupt:
        say(f"the run goes on; `paceline stop {arguments.run}` ends it")
        return 0


def stop_run(arguments: argparse.Namespace) -> int:
    from paceline.launch.jobs import stop

    return stop(arguments.run, say)


def runs_list(_arguments: argparse.Namespace) -> int:
    from paceline.launch.jobs import list_runs
    from paceline.terminal import can_redraw, printable_line

    runs = list_runs(Path.cwd())
    if not runs:
        say("no runs here: `paceline train RECIPE --run runs/NAME` makes one")
    rows = [tuple(map(printable_line, _cells(run))) for run in runs]
    if can_redraw(sys.stdout):
        _print_runs(rows)
        return 0
    for row in rows:
        print("  ".join(row))
    return 0


def _cells(run: "RunState") -> tuple[str, str, str, str]:
    """Path, state, steps and age."""
    from paceline.units import format_seconds

    here = Path.cwd()
    path = run.path.relative_to(here) if run.path.is_relative_to(here) else run.path
    total = f"/{run.total_steps:,}" if run.total_steps else ""
    age = f"{format_seconds(run.age_seconds)} ago"
    return str(path), run.state, f"step {run.step:,}{total}", age


def _print_runs(rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from paceline.terminal import console_of

    table = Table.grid(padding=(0, 2, 0, 0))
    for name in ("path", "state", "step", "age"):
        table.add_column(no_wrap=name != "path", overflow="fold")
    for path, state, step, age in rows:
        table.add_row(Text(path), Text(state, _STATE_COLOURS.get(state, "")), step, age)
    console_of(sys.stdout).print(table)


def _show_output(line: str) -> None:
    """A line of a launcher's log, in which workers and libraries wrote what they liked."""
    from paceline.terminal import printable_output

    print(printable_output(line), flush=True)
