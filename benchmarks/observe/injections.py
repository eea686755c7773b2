"""Bottlenecks that are put around a script from outside, and what a verdict has to say of each."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.observe.lab_run import STORAGE, WORKERS
from paceline.lab import cluster as practice
from paceline.machine.cores import core_numbers

_BUSY = "while True: pass"
_LOADING_SECONDS = 0.0015
"""Of a sample: a batch of 256 takes three times as long as the network does with it."""
_SLOW_STORAGE = "50Mbit"
_LONG_STEPS = ("--batch", "2048")
"""So that exchanging 10 MB of gradients on cores that compute as well is no bottleneck."""


@dataclass(frozen=True)
class Injection:
    verdict: str
    num_steps: int
    link: str | None = None
    arguments: tuple[str, ...] = ()
    saves: bool = False
    num_busy: int = 0
    """Programs that use the cores as well."""
    slows_rank: bool = False


INJECTIONS = {
    "none": Injection("compute", 30, arguments=_LONG_STEPS),
    "loader": Injection("input", 16, arguments=("--read-seconds", str(_LOADING_SECONDS))),
    "100Mbit": Injection("network", 12, link="100Mbit"),
    "1Gbit": Injection("network", 30, link="1Gbit"),
    "rank": Injection("straggler", 16, arguments=_LONG_STEPS, slows_rank=True),
    "disk": Injection("checkpoint", 16, saves=True),
    "load": Injection("compute", 20, arguments=_LONG_STEPS, num_busy=len(core_numbers())),
}


@contextmanager
def before_start(kind: Injection, lab: Path) -> Iterator[None]:
    """Links and storage of the hosts."""
    with ExitStack() as stack:
        for host in WORKERS:
            practice.set_link(lab, host, kind.link)
        if kind.saves:
            for host in WORKERS:
                stack.enter_context(slow_storage(lab, host))
        yield


@contextmanager
def beside_steps(kind: Injection, workers: Sequence[psutil.Process]) -> Iterator[None]:
    """Other programs: they need not slow down the start."""
    with ExitStack() as stack:
        stack.enter_context(busy_programs(kind.num_busy))
        if kind.slows_rank:
            stack.enter_context(slowed_rank(workers))
        yield


@contextmanager
def busy_programs(count: int, core: int | None = None) -> Iterator[None]:
    """Each in a session of its own: Linux divides a core between sessions before processes."""
    command = [sys.executable, "-c", _BUSY]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        for process in started if core is not None else []:
            os.sched_setaffinity(process.pid, {core or 0})
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def slowed_rank(workers: Sequence[psutil.Process]) -> Iterator[None]:
    """The last shares its core with three other programs; the first has one for itself."""
    first, last = core_numbers()[0], core_numbers()[-1]
    for process, core in zip(workers, (first, last), strict=True):
        os.sched_setaffinity(process.pid, {core})
    with busy_programs(3, last):
        yield


def storage_path(lab: Path) -> Path:
    return lab / "local" / "storage"


@contextmanager
def slow_storage(lab: Path, host: str) -> Iterator[None]:
    """A folder of a third host, whose link is slow, mounted over ssh."""
    settings = practice.read_lab(lab)
    practice.set_link(lab, STORAGE, _SLOW_STORAGE)
    path = storage_path(lab)
    login = f"IdentityFile={lab}/keys/user,UserKnownHostsFile={lab}/known_hosts"
    source = f"{settings.address(STORAGE)}:{lab}/local"
    _inside(lab, host, "mkdir", "-p", str(path))
    _inside(lab, host, "sshfs", "-o", login, source, str(path))
    try:
        yield
    finally:
        _inside(lab, host, "umount", "-l", str(path))
        for process in psutil.process_iter(["cmdline"]):
            if source in (process.info["cmdline"] or []):
                process.kill()


def _inside(lab: Path, host: str, *words: str) -> None:
    subprocess.run(practice.enter(lab, host, list(words)), check=True, capture_output=True)
