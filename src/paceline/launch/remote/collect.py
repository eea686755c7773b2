"""Bringing a run home from hosts whose run directory is their own.

Checkpoints come from the host that has the newest; events of all hosts are joined, because a rank
may have lived on several hosts in turn.
"""

import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, login_failure, on_all, run_on, ssh_command
from paceline.record.events import parse_event
from paceline.record.schema import RunDirectory

Say = Callable[[str], None]

_NOT_OURS = ("./.*", "./logs", "./launcher.log", "./launch.json", "./events/launcher.jsonl")


def collect(run: RunDirectory, hosts: Sequence[Host], say: Say) -> None:
    """Fetch what is new on these hosts; one that does not answer is named and left out."""
    if not hosts:
        return
    steps = dict(zip(hosts, on_all(hosts, lambda host: _steps_there(host, run)), strict=True))
    silent = [host.name for host, found in steps.items() if found is None]
    if silent:
        say(f"not collected, because there is no answer: {', '.join(silent)}")
    answering = [host for host in hosts if steps[host] is not None]
    if not answering:
        return
    holder = max(answering, key=lambda host: max(steps[host] or {""}, default=""))
    for host in answering:
        wanted = (steps[host] or set()) - _steps_here(run) if host is holder else set()
        _fetch(run, host, sorted(wanted), everything=host is holder)
    say(f"collected from {', '.join(host.name for host in answering)} into {run.path}")


def _steps_there(host: Host, run: RunDirectory) -> set[str] | None:
    folder = shlex.quote(str(run.checkpoints))
    answer = run_on(host, ["sh", "-c", f"ls {folder} 2>/dev/null; true"])
    if login_failure(answer) is not None:
        return None
    return {name for name in answer.stdout.split() if name.startswith("step-")}


def _steps_here(run: RunDirectory) -> set[str]:
    return {path.name for path in run.checkpoints.glob("step-*")}


def _fetch(run: RunDirectory, host: Host, checkpoints: list[str], everything: bool) -> None:
    """A tar of the run through ssh, unpacked beside the run and then moved in."""
    excluded = [*_NOT_OURS, "./checkpoints"]
    names = ["."] if everything else ["./events"]
    names += [f"./checkpoints/{name}" for name in checkpoints]
    aside = Path(tempfile.mkdtemp(prefix=".collect-", dir=run.path))
    try:
        _untar(host, _tar_words(run, excluded, names[:1]), aside)
        if checkpoints:
            _untar(host, _tar_words(run, [], names[1:]), aside)
        _move_in(aside, run.path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _tar_words(run: RunDirectory, excluded: list[str], names: list[str]) -> list[str]:
    left_out = [f"--exclude={pattern}" for pattern in excluded]
    return ["tar", "-C", str(run.path), *left_out, "--ignore-failed-read", "-cf", "-", *names]


def _untar(host: Host, words: list[str], folder: Path) -> Answer:
    command = ssh_command(host, words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, filter="data")
        except tarfile.ReadError:
            pass  # nothing there yet, or the line was cut: what is whole has arrived
        errors = process.stderr.read().decode(errors="replace")
    return Answer(host, process.returncode, "", errors)


def _move_in(aside: Path, home: Path) -> None:
    for path in sorted(aside.rglob("*")):
        target = home / path.relative_to(aside)
        if path.is_symlink():
            target.unlink(missing_ok=True)
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.parent.name == "events" and target.exists():
            join_events(target, path)
        else:
            path.replace(target)


def join_events(ours: Path, theirs: Path) -> None:
    """Lines of both, each once, by time: a rank's attempts may be spread over hosts."""
    lines = {*ours.read_bytes().splitlines(), *theirs.read_bytes().splitlines()}
    aside = ours.with_name(f".{ours.name}.joined")
    aside.write_bytes(b"".join(line + b"\n" for line in sorted(lines, key=_time_of)))
    aside.replace(ours)


def _time_of(line: bytes) -> tuple[float, bytes]:
    event = parse_event(line)
    return (event["time"] if event else 0.0), line
