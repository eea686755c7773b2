"""`paceline run --hosts` on its way: started, watched, disturbed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.record.schema import RunDirectory

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass
class ScriptRun:
    run: RunDirectory
    process: subprocess.Popen[bytes]
    output: Path
    script: str

    @classmethod
    def start(cls, hosts: Path, run: Path, script: str, *words: str) -> "ScriptRun":
        """`words`: what follows the script; what stands before a `--` are options of Paceline."""
        place = words.index("--") if "--" in words else None
        options, arguments = ((), words) if place is None else (words[:place], words[place + 1 :])
        output = run.parent / f"{run.name}.output"
        command = [sys.executable, "-m", "paceline.cli", "run", "--hosts", str(hosts)]
        command += ["--run", str(run), *options, script, *arguments]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=SCRIPTS,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(RunDirectory(run), process, output, script)

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, what: Callable[[str], bool], seconds: float = 90) -> float:
        """Until what was said is so; how long that took."""
        began = time.monotonic()
        while not what(self.said):
            is_over = self.process.poll() is not None and not what(self.said)
            assert not is_over, f"it ended before\n{self.said}"
            assert time.monotonic() - began < seconds, f"not within {seconds} s\n{self.said}"
            time.sleep(0.1)
        return time.monotonic() - began

    def wait_for_step(self, step: int) -> float:
        told = [f"rank {rank}] step {step}\n" for rank in (0, 1)]
        return self.wait_for(lambda said: all(text in said for text in told))

    def worker(self, rank: int) -> psutil.Process:
        """The script's process, seen from outside of its host."""
        for process in psutil.process_iter():
            try:
                if self.script not in process.cmdline():
                    continue
                variables = process.environ()
            except psutil.Error:
                continue
            is_ours = str(self.run.path) in variables.get("PACELINE_OBSERVE", "")
            if is_ours and variables.get("RANK") == str(rank):
                return process
        raise AssertionError(f"there is no rank {rank}\n{self.said}")

    def finish(self, seconds: float = 90) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"it did not end\n{self.said}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
