"""The device of these tests, or why there is none."""

from pathlib import Path

import pytest
import torch

from paceline.selftest.bench import Bench

_prepared: dict[str, Path] = {}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The first device that torch sees; stand-ins are prepared once for all tests."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use (`make test` hides them; `make test-gpu` does not)")
    return Bench(tmp_path, torch.device("cuda", 0), torch.cuda.device_count(), _prepared)


@pytest.fixture
def two_devices(bench: Bench) -> Bench:
    if bench.num_devices < 2:
        pytest.skip("needs two GPUs, and there is one")
    return bench
