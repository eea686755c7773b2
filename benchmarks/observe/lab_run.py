"""A script of `scripts/` on two practice hosts, and the processes of its ranks."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.lab import cluster as practice
from paceline.record.schema import RunDirectory

SCRIPTS = ("ddp", "stream", "gan", "sharded", "accelerated", "hugging_face", "lit")
FOLDER = Path(__file__).parent / "scripts"
WORKERS = ("node0", "node1")
STORAGE = "node2"
_EVERY_SECONDS = 0.1
_START_SECONDS = 120.0


@contextmanager
def practice_lab(directory: Path) -> Iterator[Path]:
    """Two hosts that train and one that has files; returns the hosts file of the two."""
    hosts_file = practice.up(3, None, directory, lambda _text: None)
    try:
        yield _without_storage(hosts_file)
    finally:
        practice.down(directory, lambda _text: None, keeps_runs=False)


def _without_storage(hosts_file: Path) -> Path:
    import yaml

    settings = yaml.safe_load(hosts_file.read_text(encoding="utf-8"))
    settings["hosts"] = [host for host in settings["hosts"] if host["name"] in WORKERS]
    path = hosts_file.with_name("two-hosts.yaml")
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@dataclass
class LabRun:
    run: Path
    process: "subprocess.Popen[bytes]"
    output: Path

    @classmethod
    def start(cls, hosts: Path, run: Path, script: str, arguments: list[str]) -> "LabRun":
        output = run.with_suffix(".output")
        command = [sys.executable, "-m", "paceline.cli", "run", "--hosts", str(hosts)]
        command += ["--run", str(run), f"{script}.py", *arguments]
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=FOLDER, stdout=file, stderr=file)
        return cls(run, process, output)

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def worker(self, rank: int) -> psutil.Process:
        return find_worker(str(self.run), rank, self.process)

    def wait_for_steps(self) -> None:
        """Until every rank has done its first."""
        records = [RunDirectory(self.run).rank_events(rank) for rank in range(len(WORKERS))]
        while self.process.poll() is None and not all(path.is_file() for path in records):
            time.sleep(_EVERY_SECONDS)

    def wait(self, seconds: float) -> int:
        ended = threading.Timer(seconds, self.process.terminate)
        ended.start()
        code = self.process.wait()
        ended.cancel()
        return code


MARK = "BENCHMARK_RUN"
"""A variable by which processes are found that Paceline does not start."""


def find_worker(run: str, rank: int, launcher: "subprocess.Popen[bytes]") -> psutil.Process:
    """The script's process of a rank, seen from outside of its host; waits for it."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and launcher.poll() is None:
        for process in psutil.process_iter():
            if _is_worker(process, run, rank):
                return process
        time.sleep(_EVERY_SECONDS)
    raise RuntimeError(f"there is no rank {rank} of {run}")


def _is_worker(process: psutil.Process, run: str, rank: int) -> bool:
    """Loader processes have the same variables; they are younger."""
    try:
        if not any(word.endswith(".py") for word in process.cmdline()):
            return False
        variables = process.environ()
        parent = process.parent()
        is_first = parent is None or parent.environ().get("RANK") is None
    except psutil.Error:
        return False
    told = variables.get("PACELINE_OBSERVE", "") + variables.get(MARK, "")
    is_ours = run in told and "LOCAL_RANK" in variables and is_first
    return is_ours and variables.get("RANK") == str(rank)
