"""Phases by elimination: which boundary explains the time before it."""

from collections.abc import Iterator

import pytest

from paceline.observe import boundaries
from paceline.observe.boundaries import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    SHUT_DOWN,
    UNEXPLAINED,
    Boundaries,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(boundaries, "perf_counter", clock)
    yield clock


class Loop:
    """A loop whose parts last as long as they are said to."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.times = clock, Boundaries()

    def passing(self, seconds: float) -> None:
        self.clock.now += seconds

    def batch(self, wait: float, is_training: bool = True, grad_enabled: bool = True) -> None:
        self.times.ask(is_training, grad_enabled)
        self.passing(wait)
        self.times.got()

    def backward(self, seconds: float) -> None:
        self.times.begin_backward()
        self.passing(seconds)
        self.times.end_backward()

    def update(self, seconds: float) -> None:
        self.times.begin_step()
        self.passing(seconds)
        self.times.end_step()

    def step(self) -> None:
        self.batch(1.0)
        self.passing(2.0)
        self.backward(4.0)
        self.passing(0.5)
        self.update(8.0)

    def end(self) -> dict[str, float]:
        return self.times.finish()


def test_a_plain_step_is_input_compute_and_optimizer(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    assert loop.times.take() == {INPUT: 1.0, COMPUTE: 6.0, OPTIMIZER: 8.5}
    loop.passing(0.25)
    loop.step()
    assert loop.times.take()[UNEXPLAINED] == 0.25


def test_what_comes_before_the_first_batch_is_start_up_and_not_booked(clock: Clock) -> None:
    loop = Loop(clock)
    loop.passing(100.0)
    loop.step()
    assert sum(loop.times.take().values()) == 15.5
    assert loop.times.loop_started == 100.0


def test_a_batch_that_was_only_looked_at_is_start_up(clock: Clock) -> None:
    loop = Loop(clock)
    loop.times.begin_pass()
    loop.batch(1.0, is_training=False)
    loop.passing(50.0)  # the model is built for that shape
    loop.times.begin_pass()
    loop.step()
    assert loop.times.loop_started == 51.0


def test_accumulated_batches_that_are_fetched_together_are_all_input(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    loop.batch(1.0)
    loop.batch(1.0)
    for _ in range(2):
        loop.passing(2.0)
        loop.backward(4.0)
    loop.update(8.0)
    assert loop.times.take() == {INPUT: 2.0, COMPUTE: 12.0, OPTIMIZER: 8.0}


def test_batches_under_no_grad_are_an_evaluation(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    for _ in range(3):
        loop.batch(1.0, is_training=False, grad_enabled=False)
        loop.passing(2.0)
    loop.step()
    found = loop.times.take()
    assert found[EVALUATE] == 9.0
    assert found[INPUT] == 1.0
    assert loop.times.aside_seconds == 9.0


def test_a_pass_without_backward_is_an_evaluation_even_with_gradients_on(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    iteration = loop.times.begin_iteration()
    for _ in range(3):
        loop.batch(1.0, is_training=False)
        loop.passing(2.0)
    loop.times.ask(False, True)
    loop.times.end_iteration(iteration)
    loop.step()
    assert loop.times.take()[EVALUATE] == 9.0


def test_eval_and_train_mode_bound_an_evaluation_without_a_loader(clock: Clock) -> None:
    loop = Loop(clock)
    loop.backward(4.0)
    loop.update(8.0)
    loop.times.take()
    loop.times.eval_mode()
    loop.passing(30.0)
    loop.times.train_mode()
    loop.passing(2.0)
    loop.backward(4.0)
    loop.update(8.0)
    assert loop.times.take() == {EVALUATE: 30.0, COMPUTE: 6.0, OPTIMIZER: 8.0}


def test_a_network_that_trains_in_eval_mode_still_trains(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    loop.times.eval_mode()
    loop.step()
    assert EVALUATE not in loop.times.take()


def test_a_closure_inside_the_optimizers_step_is_compute(clock: Clock) -> None:
    loop = Loop(clock)
    loop.batch(1.0)
    loop.times.begin_step()
    loop.passing(2.0)
    loop.backward(4.0)
    loop.passing(8.0)
    loop.times.end_step()
    assert loop.times.take() == {INPUT: 1.0, COMPUTE: 6.0, OPTIMIZER: 8.0}


def test_saves_and_collectives_are_told_apart_wherever_they_are(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    loop.times.enter()
    loop.passing(3.0)
    loop.times.leave(CHECKPOINT)
    loop.batch(1.0)
    loop.passing(1.0)
    loop.times.enter()
    loop.passing(5.0)
    loop.times.leave(NETWORK)
    loop.passing(1.0)
    loop.backward(4.0)
    loop.update(8.0)
    assert loop.times.take() == {
        CHECKPOINT: 3.0,
        INPUT: 1.0,
        COMPUTE: 6.0,
        NETWORK: 5.0,
        OPTIMIZER: 8.0,
    }


def test_what_is_told_apart_inside_of_something_else_takes_nothing_else_from_it(
    clock: Clock,
) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    loop.times.enter()
    loop.passing(3.0)
    for phase in (NETWORK, None):
        loop.times.enter()
        loop.passing(5.0)
        loop.times.leave_as(phase)
    loop.passing(4.0)
    assert loop.times.leave(CHECKPOINT) == 12.0
    assert loop.times.take() == {CHECKPOINT: 12.0, NETWORK: 5.0}


def test_a_process_that_ends_inside_of_a_save_has_all_its_time_booked(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    for _ in range(2):
        loop.times.enter()
        loop.passing(3.0)
    assert sum(loop.times.finish().values()) == 6.0


def test_what_follows_the_last_step_is_shut_down_and_all_adds_up(clock: Clock) -> None:
    loop = Loop(clock)
    for _ in range(3):
        loop.step()
    loop.passing(7.0)
    found = loop.end()
    assert found[SHUT_DOWN] == 7.0
    assert sum(found.values()) == clock.now


def test_the_last_evaluation_ends_with_its_score_and_the_rest_is_shut_down(clock: Clock) -> None:
    loop = Loop(clock)
    loop.step()
    loop.times.take()
    loop.times.eval_mode()
    iteration = loop.times.begin_iteration()
    loop.batch(1.0, is_training=False, grad_enabled=False)
    loop.times.ask(False, False)
    loop.times.end_iteration(iteration)  # asked for ahead of its time, as some loaders do
    loop.passing(2.0)
    loop.times.evaluated()
    loop.passing(4.0)
    assert loop.end() == {EVALUATE: 3.0, SHUT_DOWN: 4.0}
