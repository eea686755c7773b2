"""The examples as they are shipped, copied out of the repository: trained, cut, resumed."""

import os
import random
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
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 8))) for _ in range(400)]
    lines = [" ".join(draw.choices(words, k=10)) for _ in range(300)]
    (user.cwd / "book.txt").write_text("\n".join(lines), encoding="utf-8")
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


def same_with_two_processes(user: CommandLine, recipe: str, *settings: str) -> None:
    for procs in ("1", "2"):
        train(user, recipe, f"runs/{procs}", GENTLE, *settings, "--procs", procs)
    losses = user.losses("runs/1")
    assert user.losses("runs/2") == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < losses[0]


def same_after_a_kill(user: CommandLine, recipe: str) -> None:
    kill_after_a_checkpoint(user, recipe, "runs/cut", GENTLE, "--procs", "2")
    train(user, recipe, "runs/cut", GENTLE, "--procs", "2")
    assert user.weights("runs/cut") == user.weights("runs/2")


def test_the_picture_classifier(digits: CommandLine) -> None:
    same_with_two_processes(digits, "digits.yaml")
    same_after_a_kill(digits, "digits.yaml")


def test_the_gpt_in_batches_of_tokens(gpt: CommandLine) -> None:
    same_with_two_processes(gpt, "gpt.yaml", "steps=6")
    assert "tokens/s" in gpt("report", "runs/1").stdout


def test_the_gpt_takes_pieces_of_sentencepiece_too(gpt: CommandLine) -> None:
    shown = gpt("recipes", "show", "gpt.yaml", "pieces=300")
    assert shown.returncode == 0, shown.stderr
    characters = gpt("recipes", "show", "gpt.yaml")
    assert "size: " in shown.stdout
    assert shown.stdout.splitlines()[-1] != characters.stdout.splitlines()[-1]
