"""A lab of four hosts for all cluster tests, gone with the test session however that ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil
import pytest

from paceline.hosts.file import Host, HostsFile, load_hosts
from paceline.hosts.ssh import Answer, run_on
from paceline.lab import cluster as practice
from paceline.lab import state as lab_state
from tests.cluster.remote_fixtures import start, undisturbed

__all__ = ["command", "lab", "session_lab", "start", "undisturbed"]

Result = subprocess.CompletedProcess[str]

LINK = "1Gbit"

# Ends the lab when its standard input closes, which happens when the tests end or are killed.
_GUARD = """
import sys
from pathlib import Path
from paceline.lab import cluster as lab
sys.stdin.read()
lab.down(Path(sys.argv[1]), lambda text: None, keeps_runs=False)
"""


@dataclass(frozen=True)
class PracticeLab:
    """The lab, and what tests do to it."""

    directory: Path
    hosts_file: Path

    @property
    def loaded(self) -> HostsFile:
        return load_hosts(self.hosts_file)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self.loaded.hosts

    @property
    def shared(self) -> Path:
        """The same files on every host and here."""
        return self.directory / "shared"

    @property
    def local(self) -> Path:
        """This path exists on every host, with other files in it on each."""
        return self.directory / "local"

    def local_of(self, name: str) -> Path:
        """From here: the files that the host sees under `local`."""
        return self.directory / "hosts" / name / "local"

    def ssh(self, name: str, *words: str) -> Answer:
        return run_on(next(host for host in self.hosts if host.name == name), words)

    def inside(self, name: str, *words: str) -> Result:
        """Run in the host without ssh, as root."""
        command = practice.enter(self.directory, name, list(words))
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def cut(self, name: str) -> None:
        practice.cut_link(self.directory, name)

    def mend(self, name: str) -> None:
        practice.mend_link(self.directory, name)

    def power_off(self, name: str) -> None:
        practice.power_off(self.directory, name)

    def power_on(self, name: str) -> None:
        practice.power_on(self.directory, name)

    def set_link(self, name: str, link: str | None) -> None:
        practice.set_link(self.directory, name, link)

    def reset(self) -> None:
        """Every host on, plugged in, at full speed, without rules, own files and old processes.

        Nor has this machine files of its own under the path that every host has for itself."""
        if self.local.is_dir():  # and stays: hosts have theirs mounted over it
            subprocess.run(["find", self.local, "-mindepth", "1", "-delete"], check=True)
        for host in self.hosts:
            if self._is_busy(host.name):
                self.power_off(host.name)
            self.power_on(host.name)
            self.mend(host.name)
            self.set_link(host.name, LINK)
            self.inside(host.name, "iptables", "-F")
            self.inside(host.name, "find", str(self.local), "-mindepth", "1", "-delete")

    def _is_busy(self, name: str) -> bool:
        """Whether an earlier test left more running there than sshd."""
        holder = lab_state.holder(practice.read_lab(self.directory), name)
        return holder is not None and len(psutil.Process(holder).children(recursive=True)) > 1

    def write_hosts(self, path: Path, num_hosts: int, **changes: Mapping[str, object]) -> Path:
        """Another hosts file: the first few hosts, with some settings of some hosts changed."""
        import yaml

        settings = yaml.safe_load(self.hosts_file.read_text(encoding="utf-8"))
        settings |= {name: str(self.directory / settings[name]) for name in ("key", "known_hosts")}
        settings["hosts"] = [
            {**host, **changes.get(host["name"], {})} for host in settings["hosts"][:num_hosts]
        ]
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return path


@pytest.fixture(scope="session")
def session_lab() -> Iterator[PracticeLab]:
    directory = Path(f"/tmp/paceline-test-lab-{os.getpid()}")  # noqa: S108  (private, mode 0700)
    guard = subprocess.Popen(
        [sys.executable, "-c", _GUARD, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield PracticeLab(directory, practice.up(4, LINK, directory, lambda _text: None))
    finally:
        signal.signal(signal.SIGTERM, before)
        assert guard.stdin is not None
        guard.stdin.close()
        assert guard.wait(60) == 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def lab(session_lab: PracticeLab) -> PracticeLab:
    """Four hosts, node0 to node3, each as if nothing had happened to it before."""
    session_lab.reset()
    return session_lab


@pytest.fixture
def command() -> Callable[..., Result]:
    """`paceline` as a user has it."""

    def run(*words: str, timeout_seconds: float = 120, **environment: str) -> Result:
        return subprocess.run(
            [sys.executable, "-m", "paceline.cli", *words],
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            env={**os.environ, **environment},
        )

    return run
