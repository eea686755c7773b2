"""Reading ahead: the same batches with any number of threads, and the number that is found."""

import threading
import time
from typing import Any, cast

import pytest
import torch

from paceline.data.readahead import Busy, ReadAhead, fill_at_once
from paceline.machine.cores import cores_of_process, memory_of_process, num_cores
from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE, INPUT
from paceline.tasks.contract import Task
from paceline.train.input import Input, Window, coming_steps, limits_for, wanted_workers
from paceline.train.state import Progress
from paceline.train.step import plan_step
from paceline.world import World


class Squares:
    """A batch of four numbers that takes a while to fill."""

    units_per_place = 1

    def __init__(self, index: int, seconds: float = 0.0) -> None:
        self.index, self.seconds = index, seconds
        self.values = [0] * 4

    @property
    def num_samples(self) -> int:
        return len(self.values)

    def fill(self, place: int) -> None:
        time.sleep(self.seconds)
        if self.index == 13:
            raise ValueError("sample 13 is broken")
        self.values[place] = (4 * self.index + place) ** 2

    def filled(self) -> list[int]:
        return self.values


def take_all(ahead: ReadAhead, count: int) -> list[tuple[int, Any]]:
    try:
        return [ahead.take() for _ in range(count)]
    finally:
        ahead.close()


@pytest.mark.parametrize("num_workers", [1, 3, 8])
def test_any_number_of_threads_gives_the_batches_of_a_plain_loop(num_workers: int) -> None:
    indices = [5, 6, 7, 20, 21]
    expected = [(index, fill_at_once(Squares(index))) for index in indices]
    ahead = ReadAhead(lambda i: Squares(i, 0.001), iter(indices), num_workers, num_ahead=2)
    assert take_all(ahead, 5) == expected


def test_no_more_batches_are_begun_than_allowed() -> None:
    begun: list[int] = []

    def begin(index: int) -> Squares:
        begun.append(index)
        return Squares(index)

    ahead = ReadAhead(begin, iter(range(100)), num_workers=2, num_ahead=3)
    time.sleep(0.05)
    assert begun == [0, 1, 2]
    ahead.take()
    assert begun == [0, 1, 2, 3]
    ahead.close()


def test_batches_that_one_thread_fills_keep_all_threads_busy_where_memory_allows() -> None:
    """Eight meet inside of eight different batches, though two steps are only four of them."""
    all_at_once = threading.Barrier(8)

    class Whole(Squares):
        num_samples = 1

        def fill(self, place: int) -> None:
            all_at_once.wait(timeout=20)

    ahead = ReadAhead(Whole, iter(range(8)), num_workers=8, num_ahead=4, most_ahead=100)
    assert [index for index, _ in take_all(ahead, 8)] == list(range(8))
    ahead = ReadAhead(Squares, iter(range(9)), num_workers=8, num_ahead=2, most_ahead=2)
    assert len(take_all(ahead, 9)) == 9


def test_a_batch_that_cannot_be_read_raises_where_it_is_taken() -> None:
    ahead = ReadAhead(Squares, iter([12, 13, 14]), num_workers=2, num_ahead=3)
    assert ahead.take()[0] == 12
    with pytest.raises(ValueError, match="sample 13 is broken"):
        ahead.take()
    ahead.close()


def test_more_threads_read_more_at_once_and_closing_ends_them() -> None:
    before = threading.active_count()
    ahead = ReadAhead(lambda i: Squares(i, 0.05), iter(range(9)), num_workers=1, num_ahead=2)
    began = time.perf_counter()
    ahead.take()
    alone = time.perf_counter() - began
    ahead.use_workers(8)
    ahead.take()
    began = time.perf_counter()
    ahead.take()
    assert time.perf_counter() - began < alone
    assert threading.active_count() == before + 8
    ahead.close()
    assert threading.active_count() == before


def test_fewer_threads_leave_the_others_waiting() -> None:
    ahead = ReadAhead(lambda i: Squares(i, 0.02), iter(range(9)), num_workers=4, num_ahead=1)
    ahead.use_workers(1)
    ahead.take()
    before = ahead.busy()
    began = time.perf_counter()
    ahead.take()
    done = ahead.busy().since(before)
    assert done.num_samples == 4
    # One thread can be busy only as long as the clock runs; four would be busy four times as long.
    assert done.seconds < 1.5 * (time.perf_counter() - began)
    ahead.close()


# ---- how many threads


def window(**changes: Any) -> Window:
    """One thread fills 100 samples a second; the model could take 400."""
    values = {
        "num_samples": 400,
        "seconds": 4.0,
        "input_seconds": 3.0,
        "busy": Busy(num_samples=400, seconds=4.0),
    }
    return Window(**{**values, **changes})


def test_as_many_threads_are_used_as_the_model_can_take_and_a_margin() -> None:
    assert window().model_rate == 400
    assert window().worker_rate == 100
    assert wanted_workers(window(), limit=16) == 5


def test_no_more_threads_are_used_than_allowed() -> None:
    assert wanted_workers(window(), limit=3) == 3


def test_a_slow_model_gets_one_thread() -> None:
    slow = window(num_samples=20, seconds=10.0, input_seconds=0.0)
    assert wanted_workers(slow, limit=16) == 1


def test_a_reader_that_has_given_nothing_yet_gets_all_that_is_allowed() -> None:
    assert wanted_workers(window(busy=Busy()), limit=7) == 7


def test_cores_limit_the_threads_and_two_steps_are_read_ahead() -> None:
    limits = limits_for(40_000_000, num_mine=4, num_cores=8, memory_bytes=64_000_000_000)
    assert (limits.num_workers, limits.num_ahead) == (8, 8)
    assert limits.why == "8 cores per process"


def test_little_memory_limits_what_is_read_ahead_and_the_threads() -> None:
    limits = limits_for(40_000_000, num_mine=4, num_cores=8, memory_bytes=1_000_000_000)
    assert limits.num_ahead == 6
    assert limits.num_workers == 1
    assert "memory" in limits.why


def test_processes_of_a_host_share_its_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    whole = memory_of_process()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert cores_of_process() == 1
    assert num_cores() >= 1
    assert memory_of_process() < whole / 100


# ---- while the loop runs


class SlowReading:
    """A workload whose samples take 20 ms each to read; all that `Input` asks of one."""

    unit = "image"
    reads_ahead = True
    input_remedy = "make the samples smaller"

    def __init__(self, asked_workers: int | None = None) -> None:
        self.asked_workers = asked_workers
        self.largest_batch_bytes = 1000

    def begin_batch(self, index: int) -> Squares:
        return Squares(index + 100, seconds=0.02)

    def on_device(self, batch: list[int]) -> list[int]:
        return batch

    def micro_batch(self, index: int) -> list[int]:
        filled: list[int] = fill_at_once(self.begin_batch(index))
        return filled

    def micro_batches_per_step(self, world_size: int) -> int:
        return 1

    def num_units(self, index: int) -> int:
        return 4


def run_loop(workload: SlowReading, num_steps: int) -> list[dict[str, Any]]:
    """Steps whose model takes 5 ms; what was noted."""
    notes: list[dict[str, Any]] = []
    clock, world = PhaseClock(), World(0, 1, torch.device("cpu"))
    source = Input(
        cast(Task, workload), world, clock, lambda kind, **f: notes.append({"kind": kind, **f})
    )
    source.start(coming_steps(cast(Task, workload), Progress(), num_steps, world))
    for step in range(num_steps):
        plan = plan_step(cast(Task, workload), step, world)
        with clock.phase(INPUT):
            assert source.take(plan) == [workload.micro_batch(step)]
        with clock.phase(COMPUTE):
            time.sleep(0.005)
        source.after_step(step + 1, plan)
    source.close()
    return notes


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.train.input.cores_of_process", lambda: 8)
    monkeypatch.setattr("paceline.train.input._CHECK_SECONDS", 0.1)


@pytest.mark.usefixtures("eight_cores")
def test_the_first_steps_find_that_all_cores_are_needed_and_the_run_says_it_is_not_enough() -> None:
    notes = run_loop(SlowReading(), 12)
    assert notes[0]["kind"] == "input"
    assert notes[0]["loader_workers"] == 8
    assert "8 threads per process" in notes[0]["text"]
    warnings = [note["text"] for note in notes if note["kind"] == "warning"]
    assert len(warnings) == 1  # not at every step
    assert "the most for 8 cores per process" in warnings[0]


@pytest.mark.usefixtures("eight_cores")
def test_too_small_a_number_that_was_asked_for_is_kept_and_the_remedy_is_named() -> None:
    notes = run_loop(SlowReading(asked_workers=1), 8)
    assert {note["loader_workers"] for note in notes if note["kind"] == "input"} == {1}
    assert "(as asked for)" in notes[0]["text"]
    warning = next(note["text"] for note in notes if note["kind"] == "warning")
    assert "raise input.workers from 1 (up to 8 make sense here)" in warning


@pytest.mark.usefixtures("eight_cores")
def test_reading_in_the_loop_itself_is_watched_too() -> None:
    notes = run_loop(SlowReading(asked_workers=0), 8)
    warning = next(note["text"] for note in notes if note["kind"] == "warning")
    assert "raise input.workers from 0" in warning
