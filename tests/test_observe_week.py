"""A run of a week, played in seconds: its record and the observer's memory stay small."""

import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from paceline.observe import boundaries, recorder
from paceline.observe.observer import Observer
from paceline.observe.order import Order
from paceline.report.own.run import read_run

WEEK_SECONDS = 7 * 24 * 3600
STEP_SECONDS = 40.0
NUM_LISTED = 5_000
MOST_BYTES = 16e6
MOST_MEMORY_BYTES = 16e6


class Clock:
    def __init__(self) -> None:
        self.began = time.time()
        self.passed = 0.0

    def steady(self) -> float:
        return self.passed

    def of_day(self) -> float:
        return self.began + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(boundaries, "perf_counter", clock.steady)
    played = SimpleNamespace(
        time=clock.of_day, perf_counter=clock.steady, monotonic=clock.steady, process_time=time.time
    )
    monkeypatch.setattr(recorder, "time", played)
    monkeypatch.setattr(recorder, "_MOST_LISTED", NUM_LISTED)
    return clock


def test_a_run_of_a_week_stays_small_and_is_read_whole(tmp_path: Path, clock: Clock) -> None:
    observer = Observer(Order(str(tmp_path), 1, clock.began, "a", None, None, None))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    observer.made_optimizer(optimizer)
    loss, num_steps = torch.tensor(0.5), int(WEEK_SECONDS / STEP_SECONDS)
    begun = 0
    for number in range(num_steps):
        observer.begin_backward(loss)
        clock.passed += 0.75 * STEP_SECONDS
        observer.times.end_backward()
        observer.begin_step(optimizer)
        clock.passed += 0.25 * STEP_SECONDS
        observer.end_step(optimizer)
        observer.scored({"val/loss": 1.0 / (number + 1), "loss": 0.1})
        if number == num_steps // 10:
            begun = psutil.Process().memory_info().rss
    grown = psutil.Process().memory_info().rss - begun
    observer.finish("finished")
    assert grown < MOST_MEMORY_BYTES
    (record,) = (tmp_path / "events").iterdir()
    assert record.stat().st_size < MOST_BYTES
    facts = read_run(tmp_path)
    assert facts.num_steps == facts.step == num_steps
    assert facts.rate.logged.steps[-1] == num_steps
    assert facts.wall_seconds == pytest.approx(WEEK_SECONDS, rel=0.005)
    assert sum(facts.phases.values()) == pytest.approx(facts.wall_seconds, rel=0.005)
    assert facts.step_times is not None
    assert facts.step_times.mean_seconds == pytest.approx(STEP_SECONDS, rel=0.005)
    assert facts.step_times.num_timings == NUM_LISTED
    assert facts.step_times.units_per_second == pytest.approx(1 / STEP_SECONDS, rel=0.005)
