"""The run directory of a script: which one, whether it may be used, and what is written first."""

import json
import platform
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

import paceline
from paceline.errors import Say, UserError
from paceline.launch.claim import only_one
from paceline.launch.script.command import ScriptCommand
from paceline.machine.cores import num_cores, num_machine_cores
from paceline.machine.probe import machine_type
from paceline.record.directory import read_script, refuse_newer
from paceline.record.schema import SCHEMA, RunDirectory
from paceline.record.writer import prepare_directory, write_file


def choose_run(asked: Path | None, command: ScriptCommand) -> RunDirectory:
    """A script is not known to go on where it was, so each start is a run of its own, unless the
    user names one."""
    if asked is not None:
        return RunDirectory(asked.absolute())
    base = Path("runs") / command.name
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return RunDirectory(path.absolute())


@contextmanager
def claim_script_run(run: RunDirectory, command: ScriptCommand, say: Say) -> Iterator[None]:
    """The run is this launcher's alone. A start that leaves no step leaves no directory either."""
    was_there = run.exists()
    _refuse_other(run, command)
    prepare_directory(run.path)
    with only_one(run):
        if was_there:
            say(f"{run.path} is there already: this is another attempt in it")
        _write_first_files(run, command)
        yield


def _refuse_other(run: RunDirectory, command: ScriptCommand) -> None:
    if not run.exists():
        return
    if not run.is_observed:
        raise UserError(
            f"{run.path} is a run of `paceline train`", "name another --run for this script"
        )
    refuse_newer(run)
    known = read_script(run)
    if known.get("script") != told_script(command):
        raise UserError(
            f"{run.path} is a run of another script: {known.get('script')}",
            "name another --run, or none: then it is chosen",
        )


def told_script(command: ScriptCommand) -> str:
    path = Path(command.script)
    return str(path.absolute()) if path.exists() else command.script


def _write_first_files(run: RunDirectory, command: ScriptCommand) -> None:
    facts = {
        "kind": "observed",
        "script": told_script(command),
        "arguments": list(command.arguments),
        "command": list(command.words),
        "directory": str(Path.cwd()),
        "python": command.words[0],
        "num_procs": command.num_procs,
    }
    write_file(run.script, json.dumps(facts, indent=1) + "\n")
    machine = {
        "schema": SCHEMA,
        "time": time.time(),
        "paceline": paceline.__version__,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "num_cores": num_cores(),
        "num_machine_cores": num_machine_cores(),
        "machine_type": machine_type(),
        "memory_bytes": psutil.virtual_memory().total,
    }
    write_file(run.environment, json.dumps(machine, indent=1) + "\n")


def remove_unused(run: RunDirectory) -> None:
    """Only what this launcher wrote, and only where nothing was recorded."""
    if any(run.events.glob("rank-*.jsonl")):
        return
    for path in [*run.events.glob("*.jsonl"), run.script, run.environment, run.launch, run.lock]:
        with suppress(OSError):
            path.unlink()
    for folder in (run.events, run.path):
        with suppress(OSError):
            folder.rmdir()
