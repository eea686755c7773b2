"""From the command to the first step, and from a kill to the first step after it.

    python -m benchmarks.start                           # on this machine, two processes
    python -m benchmarks.start --lab 2                   # on so many lab hosts as well; needs root
    python -m benchmarks.start --against ../checkout     # beside another version of Paceline

Beside Paceline runs a bare torchrun of an empty DDP loop. All take turns, because other tenants of
the machine come and go; what is compared are medians of paired ratios. The worker is killed with
SIGKILL. On one machine the command then ends, and is given again at once; on hosts the run goes on
by itself, and so does torchrun (--max-restarts). Another version is taken from DIR/src, with the
Python of DIR/.venv where there is one.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
import yaml

from benchmarks.pictures import progress
from paceline.hosts.file import load_hosts
from paceline.hosts.ssh import ssh_command
from paceline.lab import cluster
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.tasks.cifar10 import prepare as cifar10

MOST_SECONDS = 90.0
SAVE_STEPS = 5
INTERFACE = "eth0"
"""Of every lab host."""
TORCHRUN = "bare torchrun"
PLAIN = Path(__file__).with_name("plain_start.py")
SETTINGS = (
    "steps=100000",
    "log.every_steps=1",
    "log.show_seconds=1000",
    "evaluate.every_steps=null",
    f"checkpoint.every_steps={SAVE_STEPS}",
    "device=cpu",
)


@dataclass(frozen=True)
class Start:
    seconds: float
    """From the command to the end of the first step."""
    seconds_after_kill: float
    """From the kill of a worker to the end of the first step after it."""


@dataclass(frozen=True)
class Version:
    name: str
    python: str
    path: str
    """PYTHONPATH."""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self.path}

    def command(self, data: Path, run: Path, *more: str) -> list[str]:
        words = [self.python, "-m", "paceline.cli", "train", "cifar10-tiny", f"data={data}"]
        return [*words, *SETTINGS, "--run", str(run), *more]


def this_version() -> Version:
    return Version("Paceline", sys.executable, str(Path(__file__).parents[1] / "src"))


def other_version(checkout: Path) -> Version:
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    return Version(checkout.name, python, str(checkout.absolute() / "src"))


def wait_for(what: Callable[[], float | None]) -> float:
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        found = what()
        if found is not None:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"nothing happened within {MOST_SECONDS:.0f} s")


def first_step(run: Path, attempt: int, num_steps: int = 1) -> float | None:
    """When the attempt's first step ended, once it has done so many."""
    steps = [
        event["time"]
        for event in read_events(RunDirectory(run).rank_events(0))
        if event["kind"] == "steps" and event["attempt"] == attempt
    ]
    return steps[0] if len(steps) >= num_steps else None


def kill_one_of(marks: Sequence[str]) -> float:
    """A worker of the run, known by words of its command; when that was."""
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if all(mark in line for mark in marks) and "torch.distributed.run" not in line:
            process.kill()
            return time.time()
    raise LookupError(f"no process has {marks} in its command")


@contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    continue


def ours_here(version: Version, data: Path, folder: Path) -> Start:
    run = folder / "run"
    command = version.command(data, run, "--procs", "2")
    began = time.time()
    with started(command, version.environment) as process:
        first = wait_for(lambda: first_step(run, 1))
        wait_for(lambda: first_step(run, 1, num_steps=2 * SAVE_STEPS))
        killed = kill_one_of(["paceline.train.worker", str(run)])
        process.wait()
    with started(command, version.environment):
        again = wait_for(lambda: first_step(run, 2))
    return Start(first - began, again - killed)


def ours_on_hosts(version: Version, data: Path, lab: Path) -> Start:
    run = lab / "shared" / "run"
    command = version.command(data, run, "--procs", "1", "--hosts", str(hosts_of(version, lab)))
    began = time.time()
    with started(command, version.environment):
        first = wait_for(lambda: first_step(run, 1))
        wait_for(lambda: first_step(run, 1, num_steps=2 * SAVE_STEPS))
        killed = kill_one_of(["paceline.train.worker", str(run)])
        again = wait_for(lambda: first_step(run, 2))
    shutil.rmtree(run)
    return Start(first - began, again - killed)


def hosts_of(version: Version, lab: Path) -> Path:
    """The lab's hosts file, with a Python that finds this version."""
    python = lab / "shared" / f"python-{version.name}"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={version.path} exec {version.python} "$@"\n')
    python.chmod(0o755)
    hosts = lab / f"hosts-{version.name}.yaml"
    settings = yaml.safe_load((lab / "hosts.yaml").read_text(encoding="utf-8"))
    hosts.write_text(yaml.safe_dump({**settings, "python": str(python)}), encoding="utf-8")
    return hosts


def torchrun_words(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *words]


def plain_times(file: Path) -> list[float]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [float(line) for line in lines]


def nth_plain_start(file: Path, number: int) -> float | None:
    times = plain_times(file)
    return times[number] if len(times) > number else None


def plain_here(folder: Path) -> Start:
    file = folder / "plain"
    words = torchrun_words("--standalone", "--nproc-per-node=2", str(PLAIN), str(file))
    began = time.time()
    with started(words, dict(os.environ)) as process:
        first = wait_for(lambda: nth_plain_start(file, 0))
        time.sleep(1)
        killed = kill_one_of([PLAIN.name, str(file)])
        process.wait()
    with started(words, dict(os.environ)):
        again = wait_for(lambda: nth_plain_start(file, 1))
    return Start(first - began, again - killed)


def plain_on_hosts(lab: Path) -> Start:
    file = lab / "shared" / "plain"
    hosts = load_hosts(lab / "hosts.yaml").hosts
    place = f"{hosts[0].private_address}:29400"
    options = [f"--nnodes={len(hosts)}", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    words = torchrun_words("--max-restarts=3", *options, f"--rdzv-endpoint={place}")
    began = time.time()
    logins = []
    for host in hosts:
        own = [f"--local-addr={host.private_address}", str(PLAIN), str(file)]
        command = ["env", f"GLOO_SOCKET_IFNAME={INTERFACE}", *words, *own]
        login = subprocess.Popen(ssh_command(host, command), stderr=subprocess.DEVNULL)
        logins.append(login)
    try:
        first = wait_for(lambda: nth_plain_start(file, 0))
        time.sleep(1)
        killed = kill_one_of([PLAIN.name, str(file)])
        again = wait_for(lambda: nth_plain_start(file, 1))
        return Start(first - began, again - killed)
    finally:
        for process in processes_of(str(file)):
            process.kill()
        for login in logins:
            login.wait()
        file.unlink(missing_ok=True)


def processes_of(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if mark in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def compare(ways: dict[str, Callable[[], Start]], num_rounds: int) -> dict[str, list[Start]]:
    """In turns; by name, what was measured in every round."""
    measured: dict[str, list[Start]] = {name: [] for name in ways}
    for number in range(1, num_rounds + 1):
        for name, measure in ways.items():
            try:
                start = measure()
            except TimeoutError:  # a torchrun whose worker was killed does not always come back
                progress(f"round {number}: {name}: no step; once more")
                start = measure()
            measured[name].append(start)
            told = f"{start.seconds:.2f} s, after a kill {start.seconds_after_kill:.2f} s"
            progress(f"round {number}: {name}: {told}")
    return measured


def show(where: str, measured: dict[str, list[Start]]) -> None:
    """Seconds are medians; the ratio is ours against that line, the median over the rounds."""
    *_, ours = measured
    figures: dict[str, Callable[[Start], float]] = {
        "command to first step": lambda start: start.seconds,
        "kill to first step": lambda start: start.seconds_after_kill,
    }
    for what, of in figures.items():
        for name, starts in measured.items():
            pairs = zip(measured[ours], starts, strict=True)
            ratio = median(of(mine) / of(other) for mine, other in pairs)
            shown = f"{ratio:.2f}" if name != ours else ""
            print(f"| {where} | {what} | {name} | {median(map(of, starts)):.2f} | {shown} |")


def on_this_machine(versions: Sequence[Version], data: Path, num_rounds: int) -> None:
    def in_folder(measure: Callable[[Path], Start]) -> Start:
        with tempfile.TemporaryDirectory() as folder:
            return measure(Path(folder))

    ways: dict[str, Callable[[], Start]] = {TORCHRUN: lambda: in_folder(plain_here)}
    for version in versions:
        ways[version.name] = lambda version=version: in_folder(  # type: ignore[misc]
            lambda folder: ours_here(version, data, folder)
        )
    show("one machine, 2 processes", compare(ways, num_rounds))


def on_lab_hosts(versions: Sequence[Version], data: Path, num_hosts: int, num_rounds: int) -> None:
    lab = Path(tempfile.mkdtemp()) / "lab"
    try:
        cluster.up(num_hosts, None, lab, progress)
        shutil.copytree(data, lab / "shared" / "data")
        inside = lab / "shared" / "data"
        ways: dict[str, Callable[[], Start]] = {TORCHRUN: lambda: plain_on_hosts(lab)}
        for version in versions:
            ways[version.name] = lambda version=version: ours_on_hosts(  # type: ignore[misc]
                version, inside, lab
            )
        show(f"{num_hosts} lab hosts", compare(ways, num_rounds))
    finally:
        cluster.down(lab, progress)
        shutil.rmtree(lab.parent, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lab", type=int, default=0, metavar="HOSTS", help="lab hosts as well")
    parser.add_argument("--only-lab", action="store_true", help="leave out this machine")
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout to compare with")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends, the lab too
    data = cifar10.prepare("stand-in", cifar10.default_directory("stand-in"), progress)
    others = [other_version(options.against)] if options.against else []
    versions = [*others, this_version()]
    print("| where | what | who | seconds | Paceline takes, times as long |")
    print("|---|---|---|---|---|")
    if not options.only_lab:
        on_this_machine(versions, data, options.rounds)
    if options.lab:
        on_lab_hosts(versions, data, options.lab, options.rounds)


if __name__ == "__main__":
    main()
