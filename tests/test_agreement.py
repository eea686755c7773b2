"""Processes that stop and save together without asking each other after every step."""

import multiprocessing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from paceline.record.phases import PhaseClock
from paceline.train import agreement
from paceline.train.agreement import Agreement, steps_between
from paceline.world import World

CPU = torch.device("cpu")
NUM_STEPS = 400


def test_long_steps_are_asked_after_each_and_short_ones_about_twice_a_second() -> None:
    assert steps_between(3.0) == steps_between(0.5) == 1
    assert steps_between(0.02) == 25
    assert steps_between(0.0) == steps_between(1e-9) == 100


def test_one_process_stops_at_once() -> None:
    alone = Agreement(World(0, 1, CPU), PhaseClock())
    assert [alone.after_step(stop=n == 2, save=False)[0] for n in range(4)] == [
        False,
        False,
        True,
        False,
    ]


class StepClock:
    """Steps of a known length, however busy the machine is."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def train(rank: int, store: Path, results: Any) -> None:
    """Steps of a millisecond, those of the second process of four; it is asked to stop."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    clock = StepClock()
    setattr(agreement, "time", clock)  # noqa: B010  (another clock for the module)
    agreed = Agreement(World(rank, 2, CPU), PhaseClock())
    asked_at: list[int] = []
    saved_at: list[int] = []
    all_reduce = dist.all_reduce

    def counted(*arguments: Any, **options: Any) -> Any:
        asked_at.append(step)
        return all_reduce(*arguments, **options)

    dist.all_reduce = counted
    for step in range(1, NUM_STEPS):
        clock.now += 0.02 if rank else 0.001
        wants_save = rank == 0 and step > 60 and not saved_at
        stop, save = agreed.after_step(rank == 1 and step >= 120, wants_save)
        if save:
            saved_at.append(step)
        if stop:
            break
    results.put((asked_at, saved_at, step))


def test_two_processes_stop_after_the_same_step_and_seldom_ask(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [
        context.Process(target=train, args=(rank, tmp_path / "store", results)) for rank in (0, 1)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    # The slowest process takes half a second for 25 steps; the steps between at most double.
    assert told == [([1, 3, 7, 15, 31, 56, 81, 106, 131], [81], 131)] * 2


def test_a_host_that_queues_steps_in_no_time_is_asked_again_before_the_device_did_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps of a second ahead: from the third on the host waits for its device."""
    clock = StepClock()
    monkeypatch.setattr(agreement, "time", clock)
    world = SlowestOfTwo()
    agreed = Agreement(cast(World, world), PhaseClock())
    for step in range(1, 11):
        world.step, clock.now = step, clock.now + (0.001 if step <= 2 else 1.0)
        agreed.after_step(stop=False, save=False)
    assert world.asked_at == [1, 3, 4, 5, 6, 7, 8, 9, 10]


@dataclass
class SlowestOfTwo:
    """As if there were another process that takes as long."""

    size: int = 2
    step: int = 0
    asked_at: list[int] = field(default_factory=list)

    def ask_largest_of(self, values: list[int]) -> Any:
        self.asked_at.append(self.step)
        return SimpleNamespace(read=lambda: values)
