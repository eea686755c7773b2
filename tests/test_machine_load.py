"""Whether other programs use the cores: from the kernel's counters, and beside a real one."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paceline.machine import load
from paceline.machine.cores import core_numbers
from paceline.machine.tuning import SPIN_ON_BUSY_CORES, SPIN_ON_IDLE_CORES, speed_environment

CORE = f"cpu{core_numbers()[0]}"
BEFORE = f"cpu 9 9 9 9 9 9 9 9 0 0\n{CORE} 100 0 50 800 40 5 5 0 0 0\nintr 12345 0 0\n"
IDLE_AFTER = f"{CORE} 101 0 50 806 43 5 5 0 0 0\n"
BUSY_AFTER = f"{CORE} 103 1 51 803 42 5 5 0 0 0\n"


@pytest.fixture
def looked_at_anew() -> Iterator[None]:
    load.cores_are_busy.cache_clear()
    yield
    load.cores_are_busy.cache_clear()


def test_waiting_for_a_disk_is_not_work() -> None:
    share = load.busy_share(load.core_ticks(BEFORE), load.core_ticks(IDLE_AFTER))
    assert share == pytest.approx(1 / 10)


def test_work_of_every_kind_counts() -> None:
    share = load.busy_share(load.core_ticks(BEFORE), load.core_ticks(BUSY_AFTER))
    assert share == pytest.approx(5 / 10)


def test_cores_that_are_not_ours_do_not_count() -> None:
    assert load.core_ticks("cpu99999 1 2 3 4 5 6 7 8\n") == {}


def test_where_nobody_tells_the_cores_are_taken_for_idle() -> None:
    assert load.busy_share({}, {}) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the load of each core")
def test_beside_another_program_threads_wait_shortly(
    looked_at_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setattr("paceline.machine.tuning.num_cores", lambda: 2)
    busy = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    others = [subprocess.Popen(busy, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        assert speed_environment(1)["GOMP_SPINCOUNT"] == SPIN_ON_BUSY_CORES
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_the_look_is_done_once_so_that_later_orders_agree_with_the_first(
    looked_at_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setattr("paceline.machine.tuning.num_cores", lambda: 2)
    first = speed_environment(1)
    monkeypatch.setattr(load, "busy_share", lambda *_: 1.0)
    assert speed_environment(1) == first
    if sys.platform == "linux":
        assert first["GOMP_SPINCOUNT"] in (SPIN_ON_BUSY_CORES, SPIN_ON_IDLE_CORES)
