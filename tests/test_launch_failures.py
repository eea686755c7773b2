"""Who failed first, and what it is called: judged from plain data."""

import dataclasses
from types import SimpleNamespace

from paceline.launch.agent import first_cause
from paceline.launch.failures import Failure, root_cause
from paceline.launch.hang import RankState

BUSY = RankState(
    "b", 1, step=8, phase="compute", collective=None, quiet_seconds=40, silent_seconds=0.4
)


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
