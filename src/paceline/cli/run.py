"""`paceline run`: any training script, observed."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, count, say
from paceline.cli.run_hosts import (
    add_host_options,
    refuse_unfit_options,
    run_detached,
    run_script_on_hosts,
)
from paceline.cli.run_json import write_no_run, write_run_json

if TYPE_CHECKING:
    from paceline.launch.batch.engines import Node

_TAKEN_AWAY = 128 + signal.SIGTERM
"""A script that saves when it is told to end may end with 0, which an engine takes for finished."""
_ABOUT = (
    "Run a training script with no line changed, and see where its time went. Options of Paceline "
    "come before the script; what follows it is the script's."
)


def add_run(verbs: Verbs) -> None:
    run = verbs.add_parser("run", help="run any training script, observed", description=_ABOUT)
    run.usage = "paceline run [options] train.py ...  |  paceline run [options] -- command ..."
    run.add_argument("--run", type=Path, metavar="DIR", help="run directory (default: runs/SCRIPT)")
    run.add_argument(
        "--procs", type=count, help="processes, as torchrun --nproc-per-node starts them"
    )
    run.add_argument(
        "--python", metavar="PATH", help="the script's Python (default: the active environment's)"
    )
    run.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON when it ends; - prints"
    )
    run.add_argument(
        "--detach", action="store_true", help="live on without this terminal (see attach, stop)"
    )
    add_host_options(run)
    run.set_defaults(call=run_script_verb)


def split_words(words: list[str], options: dict[str, bool]) -> tuple[list[str], list[str], bool]:
    """Paceline's own words, those of the script, and whether they came after `--`. `options` says
    of each of Paceline's whether a value follows."""
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return words[:place], words[place + 1 :], True
        name = word.partition("=")[0]
        if word == "-m" or name not in options:
            break
        place += 1 + (options[name] and "=" not in word)
    if place < len(words) and words[place].startswith("--"):
        return words, [], False  # a mistyped option: argparse names it
    return words[:place], words[place:], False


def run_script_verb(arguments: argparse.Namespace) -> int:
    from paceline.launch.batch.engines import give_back
    from paceline.launch.batch.node import end_this_process
    from paceline.launch.batch.spot import is_spot_machine, watching_for_notice
    from paceline.launch.script.claim import choose_run
    from paceline.launch.script.command import script_command, script_python
    from paceline.launch.script.local import run_script
    from paceline.terminal import outlive_terminal

    outlive_terminal()
    refuse_unfit_options(arguments)
    if arguments.hosts is not None:
        return run_script_on_hosts(arguments)
    node = _find_node()
    python = script_python(arguments.python)
    command = script_command(arguments.command, arguments.is_whole, arguments.procs, python, node)
    directory = arguments.run
    if node is not None and node.rank > 0 and directory is not None:
        # Each host records its own processes, and two may not write one directory.
        directory = directory.with_name(f"{directory.name}-host{node.rank}")
    run = choose_run(directory, command)
    if arguments.detach:
        return run_detached(run)
    # Programs read the JSON on standard output, so the script's own output goes beside it.
    output = sys.stderr.fileno() if arguments.json == Path("-") else None
    with watching_for_notice(end_this_process, say):
        ended = run_script(run, command, say, output)
    if arguments.json is not None:
        if ended.conclusion.is_recorded:
            write_run_json(run.path, arguments.json)
        else:
            write_no_run(ended.code, ended.conclusion.text, arguments.json)
    if ended.code == 0 and ended.was_told_to_end and (node is not None or is_spot_machine()):
        return _TAKEN_AWAY
    if (node is None or node.rank == 0) and (said := give_back(os.environ, ended.code)):
        say(said)
    return ended.code


def _find_node() -> "Node | None":
    """Which host of several this is, where an engine or srun has started one process on each."""
    from paceline.launch.batch import engines, slurm

    if "LOCAL_RANK" in os.environ:
        return None
    return engines.find_node(os.environ) or slurm.find_node(os.environ)
