"""Who keeps a script waiting: judged from what its processes tell, and what a real one tells."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.launch.hang import RankState
from paceline.launch.script import vital_signs
from paceline.launch.script.environment import ObserveOrder, observing_environment
from paceline.launch.script.hangs import ScriptHangs, find_stall
from paceline.launch.script.vital_signs import VitalSigns

WAITS = RankState("a", 0, 7, "compute", "all_reduce", 16.0, 0.3, False, None, 15, "[[68]]", "0")
LATE = RankState("b", 1, 7, "input", None, 0.5, 0.3, at="train.py:31 in load")


def test_who_has_not_come_is_named_with_its_line_while_it_still_moves() -> None:
    stall = find_stall([WAITS, LATE], 15, 0.1)
    assert stall is not None and stall.guilty == (LATE,)
    assert not stall.nobody_moves and not stall.is_for_good
    assert stall.text == (
        "rank 1 on b, step 7, input, at train.py:31 in load: has not come; waiting: rank 0 on a in "
        "all_reduce number 15 for 16.0 s"
    )


def test_slow_steps_are_waited_for() -> None:
    assert find_stall([WAITS, LATE], 15, 0.1)
    assert find_stall([WAITS, LATE], 15, 4.0) is None
    assert find_stall([replace(WAITS, quiet_seconds=9.0), LATE], 15, 0.1) is None


def test_different_collectives_with_one_number_never_end() -> None:
    other = replace(WAITS, host="b", rank=1, collective="broadcast", collective_sizes="[[7]]")
    stall = find_stall([WAITS, other], 15, 0.1)
    assert stall is not None and stall.is_for_good
    assert "all_reduce number 15 of [[68]]; rank 1 on b in broadcast number 15" in stall.text


def test_the_same_collective_of_other_sizes_never_ends_either() -> None:
    other = replace(WAITS, host="b", rank=1, collective_sizes="[[70]]")
    stall = find_stall([WAITS, other], 15, 0.1)
    assert stall is not None and stall.is_for_good and "[[70]]" in stall.text


def test_who_is_in_an_earlier_collective_is_behind() -> None:
    behind = replace(WAITS, host="b", rank=1, collective_number=14)
    stall = find_stall([WAITS, behind], 15, 0.1)
    assert stall is not None and stall.guilty == (behind,) and not stall.is_for_good


def test_who_has_ended_is_named_and_nobody_waits_for_it_in_vain() -> None:
    gone = replace(LATE, ended="exit code 0")
    stall = find_stall([WAITS, gone], 15, 0.1)
    assert stall is not None and stall.is_for_good and stall.guilty == (gone,)
    assert "has ended (exit code 0) while others go on" in stall.text


def test_processes_that_all_stand_still_are_named_though_no_collective_is_seen() -> None:
    still = [replace(LATE, rank=rank, quiet_seconds=20.0) for rank in (0, 1)]
    stall = find_stall(still, 15, 0.1)
    assert stall is not None and stall.nobody_moves
    assert "nothing has moved for 20.0 s" in stall.text


def test_a_hang_is_said_once_ended_late_and_said_again_after_it_was_over(tmp_path: Path) -> None:
    hangs = ScriptHangs(tmp_path, 15, 300)
    still = replace(LATE, quiet_seconds=16.0)
    first = hangs.look([WAITS, still], 0.1)
    assert first is not None and not first.ends_round
    assert "the run ends when nothing has moved for 5 min" in first.text
    assert hangs.look([WAITS, still], 0.1) is None
    assert hangs.look([replace(WAITS, quiet_seconds=0.2), LATE], 0.1) is None, "it went on"
    assert hangs.look([WAITS, still], 0.1) is not None
    long = [replace(state, quiet_seconds=301.0) for state in (WAITS, still)]
    last = hangs.look(long, 0.1)
    assert last is not None and last.ends_round


SCRIPT = """
import sys, time
def wait():
    time.sleep(600)
print("waits", flush=True)
wait()
"""


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_a_process_that_waits_tells_its_line_keeps_its_stacks_and_is_seen_when_stopped(
    script: Path, tmp_path: Path
) -> None:
    folder, run = tmp_path / "pulses", tmp_path / "run"
    folder.mkdir()
    order = ObserveOrder(str(run), 1, time.time(), pulse_directory=str(folder))
    variables = {**os.environ, **observing_environment(order), "RANK": "3"}
    process = subprocess.Popen([sys.executable, str(script)], env=variables)
    try:
        signs = VitalSigns(folder)
        wait_until(lambda: any("in wait" in str(beat.get("at")) for beat in signs.beats()))
        beat = signs.beats()[0]
        assert (beat["rank"], beat["pid"], beat["phase"]) == (3, process.pid, "start-up")
        assert beat["at"] == "train.py:4 in wait"
        signs.want_stacks()
        wait_until((run / "stacks" / "rank-00003.txt").exists)
        stacks = (run / "stacks" / "rank-00003.txt").read_text(encoding="utf-8")
        assert "in wait\n    time.sleep(600)" in stacks
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: signs.beats()[0]["stopped_seconds"] > 0)
    finally:
        process.kill()
        process.wait()
    assert signs.beats()[0]["ended"] == "gone"


def test_a_worker_that_is_not_observed_is_judged_by_what_the_kernel_tells(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(60)"])
    try:
        told = {"rank": 1, "pid": process.pid, "code": None}
        (tmp_path / "worker-00001.json").write_text(json.dumps(told), encoding="utf-8")
        signs = VitalSigns(tmp_path)
        wait_until(lambda: signs.beats()[0]["quiet_seconds"] > 1.0)
        state = RankState.of("a", signs.beats()[0])
        assert state.place == "rank 1 on a, step 0, start-up"
    finally:
        process.kill()
        process.wait()


def test_a_script_that_forks_has_no_other_thread_meanwhile(tmp_path: Path) -> None:
    """Python 3.12 warns of a fork beside threads, and a lock that is held then stays held."""
    code = (
        "import os, threading\n"
        "before = threading.active_count()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os._exit(10 * before + threading.active_count())\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "print(code, threading.active_count())\n"
    )
    order = ObserveOrder(str(tmp_path), 1, time.time(), pulse_directory=str(tmp_path))
    variables = {**os.environ, **observing_environment(order)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["21", "2"], done.stderr


def test_a_process_that_gets_little_of_a_full_machine_is_at_work(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(9)]
    try:
        for process in busy:
            os.sched_setaffinity(process.pid, {core})
        told = {"rank": 0, "pid": busy[0].pid, "code": None}
        (tmp_path / "worker-0.json").write_text(json.dumps(told), encoding="utf-8")
        signs = VitalSigns(tmp_path)
        for _ in range(4):
            (beat,) = signs.beats()
            time.sleep(1.05)
        assert beat["quiet_seconds"] == 0.0, "a ninth of a core is little, and no wait"
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_process_whose_child_is_at_work_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vital_signs, "_LOOK_AT_CHILDREN_SECONDS", 1.0)
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    waits = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        told = {"rank": 0, "pid": waits.pid, "code": None}
        (tmp_path / "worker-0.json").write_text(json.dumps(told), encoding="utf-8")
        signs = VitalSigns(tmp_path)
        longest = 0.0
        for _ in range(5):
            (beat,) = signs.beats()
            longest = max(longest, beat["quiet_seconds"])
            time.sleep(1.05)
        assert beat["quiet_seconds"] < longest, "it waited until its child was looked at"
    finally:
        os.killpg(waits.pid, signal.SIGKILL)
        waits.wait()
