"""Paceline on a Mac, as far as Linux can play one, and what it says on Windows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import EXIT_USER_ERROR
from paceline.tasks.cifar10.standin import write_archive

Result = subprocess.CompletedProcess[str]

_MAC = Path(__file__).parent / "mac"
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_WINDOWS = """
import sys
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[name] = None
sys.platform = "win32"
sys.argv = ["paceline", *sys.argv[1:]]
from paceline.cli import main
main()
"""


def _on_a_mac(folder: Path, *words: str) -> Result:
    result = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(_MAC),
            "PACELINE_DATA": str(folder),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def mac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mac")


@pytest.fixture(scope="module")
def text(mac: Path) -> Path:
    """Own sentences, prepared on a Mac."""
    own = mac / "own"
    own.mkdir()
    for split, count in (("train", 400), ("validation", 6), ("test", 6)):
        lines = [[_WORDS[(n // k) % 10] for k in (1, 3, 7, 11)] for n in range(count)]
        for language, order in (("en", 1), ("de", -1)):
            content = "".join(" ".join(line[::order]) + "\n" for line in lines)
            (own / f"{split}.{language}").write_text(content)
    _on_a_mac(mac, "data", "nmt", "--from", "own", "--to", "text", "--vocab", "60")
    return mac / "text"


def test_the_mac_that_is_played_here_has_nothing_of_linux(mac: Path) -> None:
    code = """
import ctypes, os, sys, time
from pathlib import Path
assert sys.platform == "darwin"
assert not hasattr(os, "sched_getaffinity") and not hasattr(os, "posix_fadvise")
assert not hasattr(time, "CLOCK_BOOTTIME")
assert not hasattr(ctypes.CDLL(None), "prctl")
assert not Path("/proc/self/stat").exists() and not os.path.exists("/sys/fs/cgroup")
for read in (open, Path.read_text):
    try:
        read(Path("/proc/self/stat"))
    except FileNotFoundError:
        continue
    raise AssertionError(read)
"""
    environment = {**os.environ, "PYTHONPATH": str(_MAC)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_small_pictures_are_prepared_on_a_mac(mac: Path) -> None:
    write_archive(mac / "cifar-10-binary.tar.gz", num_train=200, num_test=20)
    _on_a_mac(mac, "data", "cifar10", "--from", "cifar-10-binary.tar.gz", "--to", "pictures")
    assert (mac / "pictures" / "card.json").is_file()


def test_photos_are_drawn_and_prepared_on_a_mac(mac: Path) -> None:
    _on_a_mac(mac, "data", "imagenet", "--from", "stand-in", "--pictures", "2", "--to", "photos")
    assert (mac / "photos" / "card.json").is_file()


def test_sentences_are_composed_and_prepared_on_a_mac(mac: Path) -> None:
    _on_a_mac(mac, "data", "nmt", "--from", "stand-in", "--pairs", "200", "--to", "composed")
    assert (mac / "composed" / "card.json").is_file()


def test_a_mac_trains_evaluates_and_reports(mac: Path, text: Path) -> None:
    settings = ["data=./text", "model.vocab_size=60", "batch.global=256", "batch.micro=128"]
    settings += ["steps=3", "log.every_steps=1", "log.probe_seconds=0.2"]
    settings += ["evaluate.every_steps=null"]
    _on_a_mac(mac, "train", "nmt-tiny", "--run", "run", "--procs", "2", *settings)
    recorded = json.loads((mac / "run" / "environment.json").read_text())
    assert recorded["num_cores"] == recorded["num_machine_cores"] == os.cpu_count()
    scores = _on_a_mac(mac, "evaluate", "run", "--split", "test").stdout
    assert "bleu" in scores.lower()
    report = _on_a_mac(mac, "report", "run").stdout
    assert "3 steps" in report
    assert "not probed" not in report


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "nmt-tiny"], ["report", "run"]])
def test_windows_means_wsl(words: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _WINDOWS, *words], capture_output=True, text=True, check=False
    )
    assert result.returncode == EXIT_USER_ERROR, result.stderr
    assert "not on Windows" in result.stderr
    assert "wsl --install" in result.stderr
    assert "Traceback" not in result.stderr
