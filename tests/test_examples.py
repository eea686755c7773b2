"""The examples as they are shipped, copied out of the repository: trained, cut, resumed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import CommandLine

EXAMPLES = Path(__file__).parents[1] / "examples"
# A small rate: Adam makes much of the last bits, which differ with the order of summation.
QUICK = ["steps=12", "evaluate.every_steps=6", "checkpoint.every_steps=4", "log.every_steps=1"]
GENTLE = "schedule.rate=0.0001"


def example(name: str, tmp_path: Path) -> CommandLine:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    return CommandLine(folder, tmp_path / "no-data")


@pytest.fixture
def digits(tmp_path: Path) -> CommandLine:
    user = example("digits", tmp_path)
    draw = "import draw, pathlib; draw.main(pathlib.Path('digits.npz'), 400)"
    subprocess.run([sys.executable, "-c", draw], cwd=user.cwd, check=True, capture_output=True)
    return user


@pytest.fixture
def gpt(tmp_path: Path) -> CommandLine:
    user = example("gpt", tmp_path)
    text = (EXAMPLES.parent / "docs" / "training.md").read_text(encoding="utf-8")
    (user.cwd / "book.txt").write_text(text, encoding="utf-8")
    return user


def train(user: CommandLine, recipe: str, run: str, *words: str) -> None:
    result = user("train", recipe, *QUICK, "--run", run, *words)
    assert result.returncode == 0, result.stderr


def kill_after_a_checkpoint(user: CommandLine, recipe: str, run: str, *words: str) -> None:
    process = user.start("train", recipe, *QUICK, "--run", run, *words)
    while not list((user.cwd / run / "checkpoints").glob("step-*")) and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_the_picture_classifier_is_about_forty_lines() -> None:
    text = (EXAMPLES / "digits" / "task.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 46


def test_the_picture_classifier_learns_and_resumes_bit_for_bit(digits: CommandLine) -> None:
    train(digits, "digits.yaml", "runs/one", "--procs", "1")
    kill_after_a_checkpoint(digits, "digits.yaml", "runs/cut")
    train(digits, "digits.yaml", "runs/cut", "--procs", "1")
    assert digits.weights("runs/cut") == digits.weights("runs/one")
    losses = digits.losses("runs/one")
    assert losses[-1] < 0.8 * losses[0]


def test_the_picture_classifier_is_the_same_with_two_processes(digits: CommandLine) -> None:
    for procs in ("1", "2"):
        train(digits, "digits.yaml", f"runs/{procs}", GENTLE, "--procs", procs)
    assert digits.losses("runs/2") == pytest.approx(digits.losses("runs/1"), rel=1e-5)


def test_the_gpt_is_the_same_with_two_processes_in_batches_of_tokens(gpt: CommandLine) -> None:
    for procs in ("1", "2"):
        train(gpt, "gpt.yaml", f"runs/{procs}", GENTLE, "--procs", procs)
    assert gpt.losses("runs/2") == pytest.approx(gpt.losses("runs/1"), rel=1e-5)
    assert "tokens/s" in gpt("report", "runs/1").stdout
    kill_after_a_checkpoint(gpt, "gpt.yaml", "runs/cut", GENTLE, "--procs", "2")
    train(gpt, "gpt.yaml", "runs/cut", GENTLE, "--procs", "2")
    assert gpt.weights("runs/cut") == gpt.weights("runs/2")


def test_the_gpt_takes_pieces_of_sentencepiece_too(gpt: CommandLine) -> None:
    train(gpt, "gpt.yaml", "runs/a", "pieces=300")
    losses = gpt.losses("runs/a")
    assert losses[-1] < losses[0]
