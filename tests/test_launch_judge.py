"""Who hangs, and who failed first: judged from plain data."""

import dataclasses
from types import SimpleNamespace

from paceline.launch.agent import first_cause
from paceline.launch.judge import Failure, RankState, find_hang, root_cause

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


def test_the_echo_of_a_failure_is_not_its_cause() -> None:
    echo = Failure("a", 0, 1, "RuntimeError: [..gloo..] Connection closed by peer [10.0.0.2]")
    killed = Failure("b", 1, -9, "Signal 9 (SIGKILL) received by PID 12", state=BUSY)
    broken = Failure("b", 1, 1, "ZeroDivisionError: division by zero")
    mistake = Failure("b", 1, 2, "error: there is no data")
    assert root_cause([echo, killed]) is killed
    assert root_cause([echo, broken]) is broken
    assert root_cause([killed, mistake]) is mistake


def test_a_killed_process_is_described_by_host_rank_phase_step_and_remedy() -> None:
    text = Failure("b", 1, -9, "", memory_kills=1, state=BUSY).text
    assert text == (
        "rank 1 on b was killed by SIGKILL in compute at step 8: the host is out of memory; "
        "lower batch.micro, or start fewer processes on that host"
    )


def test_the_same_failure_at_the_same_step_is_known_again() -> None:
    first = Failure("b", 1, 1, "Traceback 0x1\nValueError: bad", state=BUSY)
    again = Failure("c", 1, 1, "Traceback 0x2\nValueError: bad", state=BUSY)
    later = Failure("b", 1, 1, "ValueError: bad", state=dataclasses.replace(BUSY, step=9))
    killed = [Failure("b", 1, -9, f"SIGKILL received by PID {pid}", state=BUSY) for pid in (7, 8)]
    assert first.key == again.key
    assert killed[0].key == killed[1].key
    assert first.key != later.key


def worker_failure(exit_code: int, at: float, message: str = "") -> SimpleNamespace:
    data = {"message": {"message": message, "extraInfo": {"py_callstack": message}}}
    return SimpleNamespace(
        exitcode=exit_code, timestamp=at, message=message, error_file_data=data if message else {}
    )


def test_a_kill_goes_before_the_broken_connection_that_was_noticed_earlier() -> None:
    killed = worker_failure(-9, at=12.0)
    neighbour = worker_failure(1, at=11.0, message="RuntimeError: Connection closed by peer")
    assert first_cause([neighbour, killed]) is killed


def test_without_a_kill_the_earliest_of_their_own_failures_goes_first() -> None:
    early = worker_failure(1, at=10.0, message="ZeroDivisionError: division by zero")
    late = worker_failure(1, at=11.0, message="KeyError: 'a'")
    echo = worker_failure(1, at=9.0, message="RuntimeError: Broken pipe")
    assert first_cause([late, echo, early]) is early
    assert first_cause([late, worker_failure(2, at=13.0, message="x: no data")]).exitcode == 2
