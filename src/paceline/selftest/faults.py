"""Checks that a fault is named: no memory left, a process that keeps the others waiting."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from paceline.errors import UserError
from paceline.launch.hang import RankState, find_hang
from paceline.order import WorkerOrder
from paceline.record.schema import COMPUTE
from paceline.selftest.bench import Bench, CheckError, open_attempt, require
from paceline.train.guard import naming_lack_of_memory

_MORE_THAN_ANY_HAS = 2**50
_HANG_SECONDS = 3.0
_STARTING_SECONDS = 120.0
_NOTICING_SECONDS = 10.0
"""Pulses come every half second; on a busy machine a process may be late with one."""


def lack_of_memory_is_named(bench: Bench, task: str) -> str:
    """The third step asks the device for a petabyte: the allocator's own refusal is explained."""
    loaded = bench.recipe(task, "steps=5", "log.every_steps=1", "evaluate.every_steps=null")
    try:
        with open_attempt(loaded, bench.new_run(), bench.device) as attempt:

            def ask_for_too_much(*_call: Any) -> None:
                if attempt.state.progress.step == 2:
                    torch.empty(_MORE_THAN_ANY_HAS, dtype=torch.uint8, device=bench.device)

            attempt.state.network.register_forward_pre_hook(ask_for_too_much)
            clock = attempt.recorder.clock
            with naming_lack_of_memory(attempt.world, loaded.batch.micro, clock):
                attempt.live(WorkerOrder(), lambda: False)
    except UserError as error:
        for wanted in ("rank 0", "out of memory", f"in {COMPUTE}"):
            require(wanted in error.what, f"'{wanted}' is not in: {error.what}")
        setting = f"batch.micro (now {loaded.batch.micro})"
        require(setting in error.fix, f"no setting is named in: {error.fix}")
        return "rank, phase and setting"
    raise CheckError("the step did not fail")


def hang_is_named(bench: Bench) -> str:
    """Two real processes: one never joins the all-reduce that the other waits in."""
    folder = bench.folder / "hang"
    folder.mkdir()
    waiting = [_start(folder, bench.device.type, rank) for rank in (0, 1)]
    try:
        return _watch(folder, waiting)
    finally:
        for process in waiting:
            process.kill()
            process.wait()


def _start(folder: Path, device: str, rank: int) -> "subprocess.Popen[bytes]":
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "paceline.selftest.hanging", str(folder), device]
    with (folder / f"output-{rank}").open("wb") as output:
        return subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=output, stderr=output
        )


def _watch(folder: Path, processes: "list[subprocess.Popen[bytes]]") -> str:
    began = time.monotonic()
    hanging_since: float | None = None
    while True:
        time.sleep(0.2)
        now = time.monotonic()
        for rank, process in enumerate(processes):
            if process.poll() is not None:
                told = (folder / f"output-{rank}").read_text(encoding="utf-8", errors="replace")
                raise CheckError(f"process {rank} ended: {told.strip()[-600:]}")
        states = _states(folder)
        if len(states) == 2 and all(state.phase == COMPUTE for state in states):
            hanging_since = hanging_since or now
        if hanging_since is None:
            require(now - began < _STARTING_SECONDS, "the two processes did not meet")
            continue
        hang = find_hang(states, _HANG_SECONDS, slowest_step_seconds=0.0)
        if hang is not None:
            return _judged(states, [state.rank for state in hang.guilty], now - hanging_since)
        late = now - hanging_since > _HANG_SECONDS + _NOTICING_SECONDS
        require(not late, f"no hang was named after {now - hanging_since:.0f} s: {states}")


def _judged(states: list[RankState], guilty: list[int], seconds: float) -> str:
    waited_in = states[0].collective
    require(guilty == [1], f"ranks {guilty} were named, not rank 1 ({waited_in})")
    return f"rank 1, after {seconds:.1f} s; rank 0 waited in {waited_in}"


def _states(folder: Path) -> list[RankState]:
    files = [folder / f"rank-{rank:05d}.json" for rank in (0, 1)]
    if not all(file.exists() for file in files):
        return []
    return [RankState.of("here", json.loads(file.read_text(encoding="utf-8"))) for file in files]
