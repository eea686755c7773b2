"""The benchmark for GPUs, on a machine without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDDEN = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
COMMAND = [sys.executable, "-m", "benchmarks.gpu"]

pytestmark = pytest.mark.cluster


def test_without_a_device_nothing_is_measured() -> None:
    done = subprocess.run(
        COMMAND, cwd=ROOT, env=HIDDEN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no CUDA device that torch can use here" in done.stderr
    assert not done.stdout


def test_on_a_processor_the_whole_script_runs() -> None:
    done = subprocess.run(
        [*COMMAND, "--device", "cpu"],
        cwd=ROOT,
        env=HIDDEN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if "/s |" in line]
    assert len(rows) >= 3
    assert all("nan" not in row for row in rows), "shares of the peak are known"
    assert "measures nothing" in done.stderr
