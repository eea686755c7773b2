"""Who hangs: judged from plain data, and said while processes of one host train."""

import dataclasses
import json
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from paceline.launch.hang import RankState, find_hang
from paceline.launch.local import HangWatch
from paceline.settings import GuardSettings
from paceline.train.watchdog import Flow, collective_of
from paceline.world import LargestOf
from tests.conftest import CommandLine, workers_of

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


def test_who_waits_for_an_answer_that_was_asked_for_before_is_seen_to_wait_for_others() -> None:
    groups: Any = dist
    store = groups.HashStore()
    with ThreadPoolExecutor(2) as meeting:
        one, other = meeting.map(lambda rank: groups.ProcessGroupGloo(store, rank, 2), (0, 1))
    values = torch.tensor([3])
    asked = LargestOf(values, one.allreduce([values]))
    waiting = threading.Thread(target=asked.read)
    waiting.start()
    try:
        until = time.monotonic() + 10
        while collective_of(_frame_of(waiting), gradients_are_out=False) != "all_reduce":
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        other.allreduce([torch.tensor([4])]).wait()
        waiting.join()
    assert values.item() == 7


def _frame_of(thread: threading.Thread) -> FrameType | None:
    return sys._current_frames().get(thread.ident or 0)


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


def test_a_process_of_this_host_that_hangs_is_named_and_may_go_on(paceline: CommandLine) -> None:
    settings = ["steps=60", "guard.hang_seconds=3", "evaluate.every_steps=null"]
    told: list[str] = []
    with paceline.start(*paceline.training("runs/a", *settings)) as run:
        stopped = last_worker(run.pid, paceline.cwd / "runs/a/events/rank-00001.jsonl")
        stopped.send_signal(signal.SIGSTOP)
        assert run.stderr is not None
        for line in run.stderr:
            told.append(line)
            if "guard.group_seconds" in line:
                stopped.send_signal(signal.SIGCONT)
    assert run.returncode == 0, "".join(told)
    (said,) = [line for line in told if line.startswith("hang: ")]
    assert said.startswith("hang: rank 1, step ") and "no sign of life" in said
    assert any(line.startswith("  rank 0, step ") and "waiting in" in line for line in told)


def last_worker(launcher: int, events: Path) -> psutil.Process:
    """Once it has trained a step."""
    while not events.exists() or '"steps"' not in events.read_text(encoding="utf-8"):
        time.sleep(0.05)
    return workers_of(launcher)[-1]


def test_steps_that_take_long_are_no_hang_on_this_host(tmp_path: Path) -> None:
    said: list[str] = []
    watch = HangWatch(tmp_path, GuardSettings(hang_seconds=25), said.append)

    def look(now: float, step: int, quiet_seconds: float) -> None:
        for rank, collective in ((0, "nccl:all_reduce"), (1, None)):
            beat = {
                **{"rank": rank, "step": step, "phase": "compute", "collective": collective},
                **{"quiet_seconds": quiet_seconds, "stop_asked": False, "ended": None},
            }
            (tmp_path / f"rank-{rank:05d}.json").write_text(json.dumps(beat))
        watch.look(now)

    look(0.0, step=1, quiet_seconds=1)
    look(40.0, step=2, quiet_seconds=1)
    for now in (42.0, 44.0):
        look(now, step=2, quiet_seconds=60)
    assert said == [], "steps take 40 s here"
    look(500.0, step=2, quiet_seconds=401)
    assert said == [], "once is not enough"
    for now in (502.0, 504.0, 506.0):
        look(now, step=2, quiet_seconds=403)
    (text,) = said
    assert text.startswith("hang: rank 1, step 2, compute: no progress for")
    assert "rank 0, step 2, compute, waiting in nccl:all_reduce" in text


def test_while_bytes_of_a_step_flow_nobody_hangs() -> None:
    """A wait of 100 s at 12.5 MB/s for 1 GB; then other programs send, which is no progress."""
    sent = 0
    flow = Flow(most_bytes=1e9, count=lambda: sent)
    seen = []
    for beat in range(200):
        seen.append(flow.last_seen(wait_since=1.0, now=1.0 + beat / 2))
        sent += 6_250_000
    assert seen[0] == 1.0 and seen[-40:] == [seen[-40]] * 40
    assert seen[-40] == pytest.approx(81.0, abs=0.5), "1 GB was through"
    assert flow.last_seen(wait_since=101.0, now=102.0) == 101.0, "another wait"
    sent += 1_000
    assert flow.last_seen(wait_since=101.0, now=102.5) == 101.0, "a few words"
