"""What tests share: small prepared pictures, and the command line as a user has it."""

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from paceline.cli import main
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10 import standin as drawing

Result = subprocess.CompletedProcess[str]

# Tests are about processors: on a machine with GPUs they would have as many processes as devices.
# `make test-gpu` asks for them.
if "PACELINE_TEST_GPU" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# In the background of a shell and under `nohup` signals are ignored, which children inherit; what
# tests start must end by Ctrl-C and a hang-up there, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Importing the observer's parts must not observe the tests themselves.
os.environ["PACELINE_OBSERVE"] = "off"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 stand-in pictures, prepared once for all tests."""
    home = tmp_path_factory.mktemp("data")
    archive = home / "cifar-10-binary.tar.gz"
    drawing.write_archive(archive, num_train=2000, num_test=200)
    return cifar10.prepare(str(archive), home / "pictures", lambda _text: None)


def workers_of(launcher: int) -> list[psutil.Process]:
    """Those that train, oldest first: they are forked in the order of their ranks."""
    found = []
    for child in psutil.Process(launcher).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "paceline.train.worker" in child.cmdline():
                found.append(child)
    return sorted(found, key=lambda child: child.create_time())


@dataclass(frozen=True)
class CommandLine:
    """`paceline` in a directory of its own, with the small pictures as data."""

    cwd: Path
    data: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, **environment: str) -> Result:
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            cwd=self.cwd,
            env=self.environment(**environment),
        )

    def here(self, *words: str, **environment: str) -> Result:
        """The same in the tests' own process, which has imported torch long ago: for verbs that
        start nothing, know no task of a user's, and are not looked at while they run."""
        told, said = io.StringIO(), io.StringIO()
        code: int | str | None = None
        with (
            patch.dict(os.environ, self.environment(**environment)),
            patch.object(sys, "argv", ["paceline", *words]),
            chdir(self.cwd),
            redirect_stdout(told),
            redirect_stderr(said),
        ):
            try:
                main()
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int | None)
        return subprocess.CompletedProcess(words, code or 0, told.getvalue(), said.getvalue())

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*words),
            text=True,
            cwd=self.cwd,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end_started(self) -> None:
        """What a test that failed has left behind would slow down all that follow."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "paceline.cli", *words]

    def environment(self, **changes: str) -> dict[str, str]:
        # Two threads of one process fight for cores when tests run beside other work.
        return {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PACELINE_DATA": str(self.data.parent),
            **changes,
        }

    def train(
        self, run: str, *settings: str, procs: int = 2, recipe: str = "cifar10-tiny"
    ) -> Result:
        return self(*self.training(run, *settings, procs=procs, recipe=recipe))

    def training(
        self, run: str, *settings: str, procs: int = 2, recipe: str = "cifar10-tiny"
    ) -> list[str]:
        where = [f"data={self.data}", "batch.global=32", "batch.micro=8", "log.every_steps=1"]
        return ["train", recipe, *where, *settings, "--run", run, "--procs", str(procs)]

    def losses(self, run: str) -> list[float]:
        return [float(row["loss"]) for row in self.table(run) if row["loss"]]

    def table(self, run: str) -> list[dict[str, str]]:
        result = self("log", run, "--csv")
        assert result.returncode == 0, result.stderr
        return list(csv.DictReader(io.StringIO(result.stdout)))

    def weights(self, run: str) -> str:
        """The one hash over all weights of the newest checkpoint."""
        result = self("checkpoint", run)
        assert result.returncode == 0, result.stderr
        return result.stdout.rpartition("sha256 over all weights: ")[2].strip()

    def copy(self, run: Path, to: str) -> Path:
        """A run that is there already, to be changed here: no second training."""
        return Path(shutil.copytree(run, self.cwd / to))


@pytest.fixture
def paceline(tmp_path: Path, pictures: Path) -> Iterator[CommandLine]:
    user = CommandLine(tmp_path, pictures)
    yield user
    user.end_started()


FINISHED = [
    "steps=12",
    "evaluate.every_steps=6",
    "evaluate.train_samples=100",
    "log.every_steps=2",
    "log.probe_seconds=0.2",
    "checkpoint.every_steps=6",
]
"""The settings of `finished_run`, for tests that go on with a copy of it."""


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A short run of two processes with everything a reader may look for; not to be changed."""
    paceline = CommandLine(tmp_path_factory.mktemp("finished"), pictures)
    result = paceline.train("runs/a", *FINISHED)
    assert result.returncode == 0, result.stderr
    return paceline.cwd / "runs" / "a"


@pytest.fixture(autouse=True)
def subnormal_numbers() -> Iterator[None]:
    """What trains in the tests' own process leaves them switched off, and Hypothesis needs them."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture
def quiet() -> Callable[[str], None]:
    return lambda _text: None
