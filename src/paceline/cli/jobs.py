"""Verbs for runs that live on without a terminal, and for batch systems."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, Verbs, count, say

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
    launch = verbs.add_parser("launch", help="scripts for batch systems")
    kinds = launch.add_subparsers(dest="kind", metavar="slurm", required=True, parser_class=Parser)
    _add_slurm(kinds)


def _add_slurm(kinds: Verbs) -> None:
    slurm = kinds.add_parser("slurm", help="a script for sbatch that goes on after an end")
    slurm.add_argument("recipe", help="name, or path of a YAML file")
    slurm.add_argument("settings", nargs="*", metavar="name=value")
    slurm.add_argument("--run", type=Path, help="run directory on shared storage")
    slurm.add_argument("--nodes", type=count, default=1)
    slurm.add_argument("--procs", type=count, default=1, help="processes per node")
    slurm.add_argument("--time", default="24:00:00", help="limit of one go (default: 24:00:00)")
    slurm.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of sbatch, like partition=gpu",
    )
    slurm.add_argument("--to", type=Path, metavar="FILE", help="write here (default: print)")
    slurm.set_defaults(call=launch_slurm)


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


def launch_slurm(arguments: argparse.Namespace) -> int:
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.launch.batch.slurm import SlurmJob, ask_slurm, batch_script, find_gpus_per_node

    num_procs = arguments.nodes * arguments.procs
    settings = understand(arguments.recipe, arguments.settings, lambda _: num_procs, say)
    loaded = recipe.load(arguments.recipe, settings)
    path = arguments.run or Path("runs") / Path(arguments.recipe).stem
    program = Path(sys.argv[0])
    command: tuple[str, ...] = (str(program.absolute()),)
    if program.name == "__main__.py":  # started as `python -m paceline.cli`
        command = (sys.executable, "-m", "paceline.cli")
    job = SlurmJob(
        [arguments.recipe, *settings],
        str(path.absolute()),
        arguments.nodes,
        arguments.procs,
        arguments.time,
        arguments.option,
        command,
        find_gpus_per_node(arguments.option),
    )
    text = batch_script(job, loaded)
    if arguments.to is None:
        print(text, end="")
        return 0
    arguments.to.write_text(text, encoding="utf-8")
    arguments.to.chmod(0o755)
    path.mkdir(parents=True, exist_ok=True)
    if said := ask_slurm(arguments.to):
        say(said)
    say(f"wrote {arguments.to}; hand it in with: sbatch {arguments.to}")
    return 0
