"""Runs that live on without a terminal: started apart, followed, stopped and listed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from paceline.errors import Say, UserError
from paceline.files import expand_home
from paceline.hosts.file import load_hosts
from paceline.launch.going_on import newest_step
from paceline.launch.remote.collect import collect
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.directory import is_being_trained, read_launch, require_run
from paceline.record.events import parse_events, read_events
from paceline.record.schema import RunDirectory
from paceline.record.writer import prepare_directory, write_file

_START_SECONDS = 20.0
_STOP_SECONDS = 900.0


def state_home() -> Path:
    """Where detached runs are noted, so that `paceline runs` finds them from anywhere."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return expand_home(base) / "paceline" / "runs"


def detach(words: list[str], run: RunDirectory, say: Say) -> int:
    """Start the same command in a session of its own, with its output in RUN/launcher.log."""
    started = start_apart(words, run)
    process = started.process
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and not is_being_trained(run):
        if process.poll() is not None:  # a mistake shows at once, and must be seen
            say(started.said())
            return process.returncode
        time.sleep(0.1)
    say(
        f"{run.path} is being trained (process {process.pid})\n"
        f"  follow: paceline attach {run.path}\n  end:    paceline stop {run.path}"
    )
    return 0


@dataclass(frozen=True)
class Started:
    """A command in a session of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    begin: int
    """Where its output begins in the log."""

    def said(self) -> str:
        return _text_from(self.log, self.begin).rstrip()


def start_apart(words: list[str], run: RunDirectory) -> Started:
    """The command of this program that trains a run; it lives on when this process is gone."""
    prepare_directory(run.path)
    if is_being_trained(run):
        raise UserError(f"{run.path} is being trained already", f"paceline attach {run.path}")
    with run.launcher_log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        begin = log.tell()
    _register(run)
    return Started(process, run.launcher_log, begin)


def _register(run: RunDirectory) -> None:
    absolute = str(run.path.absolute())
    name = absolute.strip("/").replace("/", "%")[-200:]
    write_file(state_home() / name, absolute + "\n")


def _text_from(path: Path, begin: int) -> str:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def attach(run_path: Path, show: Say, say: Say) -> int:
    """Show what the run has printed, follow it to its end, and return its exit code."""
    run = RunDirectory(run_path)
    if not run.launcher_log.exists():  # of a start that failed, what it printed is all there is
        run = require_run(run_path)
    _collect_away(run, say)
    if not run.launcher_log.exists():
        raise UserError(
            f"{run.path} was not started with --detach, so its output is where it was started",
            f"`paceline watch {run.path}` follows what it records",
        )
    with run.launcher_log.open("rb") as log:
        alive = True
        while alive:
            alive = bool(is_being_trained(run))
            for line in log:
                show(line.decode(errors="replace").rstrip("\n"))
            time.sleep(0.3 if alive else 0)
    exits = [e for e in read_events(run.launcher_events) if e["kind"] == "exit"]
    known = read_launch(run).get("code", exits[-1]["code"] if exits else 1)
    return 1 if known is None else int(known)


def _collect_away(run: RunDirectory, say: Say) -> None:
    facts = read_launch(run)
    wanted = set(facts.get("collect_from") or [])
    if not wanted or not facts.get("hosts_file"):
        return
    hosts = load_hosts(Path(facts["hosts_file"])).hosts
    collect(run, [host for host in hosts if host.name in wanted], say)


def stop(run_path: Path, say: Say) -> int:
    """Ask the launcher, wherever it runs, to save and end everything; wait until it has."""
    run = require_run(run_path)
    if not is_being_trained(run):
        say(f"{run.path} is not being trained")
        return 0
    facts = read_launch(run)
    pid = facts.get("pid")
    if pid is not None and facts.get("hostname") == socket.gethostname() and psutil.pid_exists(pid):
        os.kill(pid, signal.SIGTERM)
    else:
        run.stop_request.touch()
    say(f"asked {run.path} to {'end' if run.is_observed else 'save and stop'}")
    until = time.monotonic() + _STOP_SECONDS
    while is_being_trained(run):
        if time.monotonic() > until:
            raise UserError(
                f"{run.path} has not stopped within {_STOP_SECONDS:.0f} s",
                f"look at {run.launcher_log}; kill {pid} ends it at once",
            )
        time.sleep(0.2)
    say(f"{run.path} has stopped{_saved_in_words(run)}")
    return 0


def _saved_in_words(run: RunDirectory) -> str:
    if run.is_observed:  # what a script saves is its own business, and told by its launcher
        return ""
    steps = [step_of(path) for path in all_checkpoints(run.checkpoints)]
    return f", saved at step {max(steps, default=0):,}"


@dataclass(frozen=True)
class RunState:
    path: Path
    state: str
    """training, finished, stopped, failed or interrupted."""
    step: int
    total_steps: int | None
    age_seconds: float
    """Since it last wrote anything."""


def list_runs(here: Path) -> list[RunState]:
    """Runs under ./runs, and those that were started with --detach anywhere."""
    names = ("recipe.yaml", "script.json")
    found = {p.parent.resolve() for name in names for p in (here / "runs").glob(f"*/{name}")}
    for note in sorted(state_home().glob("*")) if state_home().is_dir() else []:
        path = Path(note.read_text(encoding="utf-8").strip())
        if RunDirectory(path).exists():
            found.add(path.resolve())
        elif not path.parent.exists() or not path.exists():
            note.unlink(missing_ok=True)
    return [describe(RunDirectory(path)) for path in sorted(found)]


def describe(run: RunDirectory) -> RunState:
    last = _last_step(run)
    exits = [e for e in read_events(run.launcher_events) if e["kind"] in ("exit", "launch")]
    written = [run.script if run.is_observed else run.recipe, *run.events.glob("*.jsonl")]
    age = time.time() - max(path.stat().st_mtime for path in written)
    return RunState(run.path, _state(run, exits), last, _total_steps(run), max(age, 0.0))


def _state(run: RunDirectory, exits: list[dict[str, Any]]) -> str:
    if is_being_trained(run):
        return "training"
    last = exits[-1] if exits else None
    if last is None or last["kind"] == "launch":  # the launcher was killed, perhaps after the end
        is_done = newest_step(run) == (_total_steps(run) or -1)
        return "finished" if is_done else "interrupted"
    if last["code"] == 0:
        return "finished"
    return "stopped" if last["code"] >= 128 or last.get("reason") == "stopped" else "failed"


def _last_step(run: RunDirectory) -> int:
    """From the end of the file: a long run's events are many."""
    for event in parse_events(_lines_backwards(run.rank_events(0))):
        if event["kind"] in ("steps", "begin", "end") and "step" in event:
            return int(event["step"])
    return 0


def _lines_backwards(path: Path, last_bytes: int = 1 << 18) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - last_bytes))
            yield from reversed(file.read().splitlines())
    except OSError:
        return


def _total_steps(run: RunDirectory) -> int | None:
    if run.is_observed:
        return None
    for line in run.recipe.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == "steps" and value.strip().isdecimal():
            return int(value)
    return None
