"""Bringing a run home from hosts whose run directory is their own.

Checkpoints come from the host that has the newest; events of all hosts are joined, because a rank
may have lived on several hosts in turn. Everything is received aside first: a checkpoint gets its
name here only when every byte is what its manifest says, and of the other files a transfer that
was cut brings none. What is missing is fetched again next time.
"""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import UserError
from paceline.files import write_whole
from paceline.hosts.file import Host
from paceline.hosts.ssh import login_failure, on_all, run_on, ssh_command
from paceline.record import checkpoints as stored
from paceline.record.events import parse_event
from paceline.record.schema import RunDirectory

Say = Callable[[str], None]

_CHECKPOINT = re.compile(r"step-[0-9]+")
_ASIDE = ".collect-"
_NOT_OURS = ("./.*", "./logs", "./launcher.log", "./launch.json", "./events/launcher.jsonl")
_OF_EVERY_HOST = ["./events", "./stacks"]
_CHUNK_BYTES = 1 << 16


def collect(run: RunDirectory, hosts: Sequence[Host], say: Say) -> None:
    """Fetch what is new on these hosts; one that does not answer is named and left out."""
    if not hosts:
        return
    steps = dict(zip(hosts, on_all(hosts, lambda host: _steps_there(host, run)), strict=True))
    silent = [host.name for host, found in steps.items() if found is None]
    if silent:
        say(f"not collected, because there is no answer: {', '.join(silent)}")
    answering = {host: found for host, found in steps.items() if found is not None}
    if not answering:
        return
    with _only_one_collects(run, say):
        incomplete = _collect_from(run, answering)
    said = f"collected from {', '.join(host.name for host in answering)} into {run.path}"
    if incomplete:
        said += (
            f", but not all of it: {', '.join(incomplete)} did not arrive whole; "
            f"`paceline attach {run.path}` fetches what is missing"
        )
    say(said)


def _collect_from(run: RunDirectory, steps: dict[Host, set[int]]) -> list[str]:
    """Checkpoints that the newest host has, from whoever has them; then the files of all.

    Returns what did not arrive whole.
    """
    holder = max(steps, key=lambda host: max(steps[host], default=-1))
    missing = steps[holder] - _whole_steps_here(run)
    for host in [holder, *(host for host in steps if host is not holder)]:
        missing -= _fetch_checkpoints(run, host, sorted(missing & steps[host]))
    cut = [host for host in steps if not _fetch_files(run, host, everything=host is holder)]
    names = [stored.checkpoint_name(step) for step in sorted(missing)]
    return [*names, *(f"the files of {host.name}" for host in cut)]


@contextmanager
def _only_one_collects(run: RunDirectory, say: Say) -> Iterator[None]:
    """Whoever holds the lock may remove what a collector that was killed has left behind."""
    with (run.path / ".collect.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that collects into {run.path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in run.path.glob(f"{_ASIDE}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _steps_there(host: Host, run: RunDirectory) -> set[int] | None:
    folder = shlex.quote(str(run.checkpoints))
    answer = run_on(host, ["sh", "-c", f"ls {folder} 2>/dev/null; true"])
    if login_failure(answer) is not None:
        return None
    names = [name for name in answer.stdout.split() if _CHECKPOINT.fullmatch(name)]
    return {stored.step_of(Path(name)) for name in names}


def _whole_steps_here(run: RunDirectory) -> set[int]:
    """By size: reading gigabytes again only to see that nothing is new would take minutes."""
    found = stored.all_checkpoints(run.checkpoints)
    return {stored.step_of(path) for path in found if _has_all_bytes(path)}


def _has_all_bytes(checkpoint: Path) -> bool:
    try:
        files = stored.read_manifest(checkpoint)["files"]
    except UserError:
        return False
    return all(
        stored.size_damage(checkpoint / name, entry) is None for name, entry in files.items()
    )


@contextmanager
def _receiving(run: RunDirectory) -> Iterator[Path]:
    """A directory on the disk of the run, so that renaming is enough; gone afterwards."""
    aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=run.path))
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fetch_checkpoints(run: RunDirectory, host: Host, steps: list[int]) -> set[int]:
    """Those that arrived whole, which is all that a cut transfer brought before the cut."""
    if not steps:
        return set()
    names = [stored.checkpoint_name(step) for step in steps]
    with _receiving(run) as aside:
        _receive(_tar_command(host, run, [f"./checkpoints/{name}" for name in names]), aside)
        arrived = stored.all_checkpoints(aside / "checkpoints")
        whole = [path for path in arrived if stored.damage(path) is None]
        for checkpoint in whole:
            _move_checkpoint(checkpoint, run)
    return {stored.step_of(path) for path in whole}


def _move_checkpoint(checkpoint: Path, run: RunDirectory) -> None:
    """Flushed before it gets its name; a torn one of that name makes room first."""
    for path in [*checkpoint.iterdir(), checkpoint]:
        _flush(path)
    run.checkpoints.mkdir(exist_ok=True)
    target = run.checkpoints / checkpoint.name
    if target.exists():
        target.rename(checkpoint.with_name(f"torn-{checkpoint.name}"))
    checkpoint.rename(target)
    _flush(run.checkpoints)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fetch_files(run: RunDirectory, host: Host, everything: bool) -> bool:
    """All but checkpoints, or the events alone; False, and nothing is changed, if it was cut."""
    excluded = [*_NOT_OURS, "./checkpoints"]
    with _receiving(run) as aside:
        command = _tar_command(host, run, ["."] if everything else _OF_EVERY_HOST, excluded)
        is_complete = _receive(command, aside)
        if is_complete:
            _move_files(aside, run.path)
    return is_complete


def _tar_command(
    host: Host, run: RunDirectory, names: list[str], excluded: Sequence[str] = ()
) -> list[str]:
    left_out = [f"--exclude={pattern}" for pattern in excluded]
    tar = ["tar", "-C", str(run.path), *left_out, "--ignore-failed-read", "-cf", "-", *names]
    return ssh_command(host, tar)


def _receive(command: Sequence[str], folder: Path) -> bool:
    """Unpack the tar that a command prints; whether all of it has come.

    A stream that is cut between two members looks complete, so the exit code counts as well: ssh
    then has 255, while tar has 1 for a file that grew and 2 for one that is not there (yet).
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None  # noqa: S101  (it was asked for)
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, filter="data")
            while process.stdout.read(_CHUNK_BYTES):  # what fills up tar's last block
                pass
        except (tarfile.TarError, OSError):
            process.kill()
            return False
    return process.returncode in (0, 1, 2)


def _move_files(aside: Path, home: Path) -> None:
    for path in sorted(aside.rglob("*")):
        target = home / path.relative_to(aside)
        if path.is_symlink():
            _move_link(path, target)
        elif path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.parent.name == "events" and target.exists():
            join_events(target, path)
        else:
            path.replace(target)


def _move_link(path: Path, target: Path) -> None:
    """`best` must not point to a checkpoint that has not arrived."""
    if (target.parent / path.readlink()).exists():
        path.replace(target)


def join_events(ours: Path, theirs: Path) -> None:
    """Lines of both, each once, by time: a rank's attempts may be spread over hosts.

    A line of theirs without its end is still being written; it comes whole the next time.
    """
    complete = theirs.read_bytes().rpartition(b"\n")[0]
    lines = {*ours.read_bytes().splitlines(), *complete.splitlines()}
    write_whole(ours, b"".join(line + b"\n" for line in sorted(lines, key=_time_of)))


def _time_of(line: bytes) -> tuple[float, bytes]:
    event = parse_event(line)
    return (event["time"] if event else 0.0), line
