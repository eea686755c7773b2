"""A training over ssh as the cluster tests see it: started, watched, disturbed, compared."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.record.checkpoints import choose, read_manifest
from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory

SETTINGS = [
    "batch.global=32",
    "batch.micro=8",
    "log.every_steps=1",
    "evaluate.every_steps=null",
    "evaluate.train_samples=0",
    "checkpoint.every_steps=5",
    "device=cpu",
]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


def weights(run: Path) -> str:
    """One hash over all weights of the newest checkpoint."""
    return str(read_manifest(choose(run, "newest"))["weights_sha256"])


def words(data: Path, run: Path, *more: str) -> list[str]:
    settings = [f"data={data}", *SETTINGS, *more]
    return [
        sys.executable,
        "-m",
        "paceline.cli",
        "train",
        "cifar10-tiny",
        *settings,
        "--run",
        str(run),
    ]


@dataclass
class RemoteRun:
    """`paceline train --hosts` on its way."""

    run: RunDirectory
    process: subprocess.Popen[bytes]
    output: Path

    @classmethod
    def start(
        cls, hosts: Path, data: Path, run: Path, *settings: str, practice: str = ""
    ) -> "RemoteRun":
        output = run.parent / f"{run.name}.output"
        output.parent.mkdir(parents=True, exist_ok=True)
        changes = {"PACELINE_PRACTICE": practice} if practice else {}
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*words(data, run, *settings), "--hosts", str(hosts)],
                env=environment(**changes),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(RunDirectory(run), process, output)

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def events(self, rank: int = 0) -> list[Event]:
        return read_events(self.run.rank_events(rank))

    def launches(self) -> list[Event]:
        return [e for e in read_events(self.run.launcher_events) if e["kind"] == "launch"]

    def step_of(self, attempt: int) -> int:
        steps = [e for e in self.events() if e["kind"] == "steps" and e["attempt"] == attempt]
        return max((event["step"] for event in steps), default=0)

    def wait_for(self, what: Callable[[], bool], seconds: float = 90) -> float:
        """Until it is so; how long that took."""
        began = time.monotonic()
        while not what():
            assert self.process.poll() is None, f"it ended before\n{self.said}"
            assert time.monotonic() - began < seconds, f"not within {seconds} s\n{self.said}"
            time.sleep(0.1)
        return time.monotonic() - began

    def wait_for_steps(self, attempt: int, more: int = 3, seconds: float = 90) -> float:
        """Until this attempt trains: so many steps beyond where it began."""

        def trains() -> bool:
            own = [e for e in self.events() if e["attempt"] == attempt]
            began = [e["step"] for e in own if e["kind"] == "begin"]
            return bool(began) and self.step_of(attempt) >= began[0] + more

        return self.wait_for(trains, seconds)

    def finish(self, seconds: float = 120) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"it did not end\n{self.said}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def processes(self, host: str, module: str = "paceline.") -> list[psutil.Process]:
        """Of this run on one host, seen from outside of it."""
        found = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
            except psutil.Error:
                continue
            line = " ".join(command)
            if module not in line or str(self.run.path) not in line or "ssh" in command[0]:
                continue
            if f"{self.run.path} {host} " in line or f"remote.supervisor {host}" in line:
                found.append(process)
        return found

    def send_all(self, host: str, number: signal.Signals) -> None:
        """A signal to every process there; some end before it is their turn."""
        for process in self.processes(host):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def worker(self, host: str) -> psutil.Process:
        return self.processes(host, "paceline.train.worker")[0]


Start = Callable[..., RemoteRun]
"""Starts a run on so many hosts with these settings."""
