"""Who hangs: judged from plain data."""

import dataclasses

from paceline.launch.hang import RankState, find_hang

WAITING = RankState(
    "a",
    0,
    step=8,
    phase="compute",
    collective="all_reduce of gradients",
    quiet_seconds=40,
    silent_seconds=0.5,
)
BUSY = RankState(
    "b", 1, step=8, phase="compute", collective=None, quiet_seconds=40, silent_seconds=0.4
)


def test_a_world_that_moves_does_not_hang() -> None:
    moving = dataclasses.replace(BUSY, quiet_seconds=1.0)
    assert find_hang([WAITING, moving], 30, 0.1) is None


def test_the_one_that_does_not_wait_for_others_keeps_them_waiting() -> None:
    hang = find_hang([WAITING, BUSY], 30, 0.1)
    assert hang is not None
    assert hang.guilty == (BUSY,)
    assert "rank 1 on b, step 8, compute" in hang.text


def test_a_process_without_a_sign_of_life_hangs_whatever_the_others_do() -> None:
    stopped = dataclasses.replace(BUSY, quiet_seconds=0.1, silent_seconds=31)
    hang = find_hang([dataclasses.replace(WAITING, quiet_seconds=2), stopped], 30, 0.1)
    assert hang is not None
    assert hang.guilty == (stopped,)
    assert "no sign of life" in hang.text


def test_a_process_that_fell_silent_just_after_its_start_is_found_by_those_in_a_step() -> None:
    stopped = dataclasses.replace(BUSY, phase="unexplained", step=5, silent_seconds=31)
    in_a_step = dataclasses.replace(WAITING, quiet_seconds=2)
    starting = dataclasses.replace(in_a_step, phase="unexplained")
    hang = find_hang([in_a_step, stopped], 30, 0.1)
    assert hang is not None and hang.guilty == (stopped,)
    assert find_hang([starting, stopped], 30, 0.1) is None


def test_all_waiting_for_each_other_is_a_hang_of_all() -> None:
    hang = find_hang([WAITING, dataclasses.replace(BUSY, collective="broadcast")], 30, 0.1)
    assert hang is not None
    assert len(hang.guilty) == 2
    assert "waited for each other" in hang.text


def test_evaluation_start_up_and_long_steps_have_their_time() -> None:
    for phase in ("evaluate", "checkpoint", "start-up"):
        assert find_hang([WAITING, dataclasses.replace(BUSY, phase=phase)], 30, 0.1) is None
    assert find_hang([WAITING, BUSY], 30, slowest_step_seconds=20) is None


def test_a_process_that_has_ended_cannot_hang() -> None:
    ended = dataclasses.replace(BUSY, silent_seconds=500, ended="finished")
    assert find_hang([ended], 30, 0.1) is None
