"""Hangs and failures of CUDA devices, as far as they can be shown without one."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.errors import UserError
from paceline.launch.agent import first_cause
from paceline.launch.failures import Failure, is_second_hand, root_cause
from paceline.launch.hang import RankState, find_hang
from paceline.machine.tuning import speed_environment
from paceline.observe import flight
from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE, EVALUATE
from paceline.train.guard import naming_lack_of_memory
from paceline.train.measure.collectives import PendingCollective, first_pending, pending_collective
from paceline.world import World
from tests.test_launch_failures import worker_failure

# As torch and NCCL print them.
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
    "NCCLUtils.cpp:94, remote process exited or there was a network error, NCCL version 2.27.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely."
)
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
    "NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600010 milliseconds"
)
OWN_DEVICE = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled cuda error\n"
    "ncclUnhandledCudaError: Call to CUDA function failed."
)


def test_what_nccl_says_of_a_lost_neighbour_is_an_echo_and_of_its_own_device_is_not() -> None:
    assert is_second_hand(REMOTE)
    assert is_second_hand(TIMEOUT)
    assert not is_second_hand(OWN_DEVICE)


@pytest.mark.parametrize(
    "cause",
    [
        Failure("b", 1, -9, "Signal 9 (SIGKILL) received by PID 12"),
        Failure("b", 1, 1, "ZeroDivisionError: division by zero"),
        Failure("b", 1, 1, OWN_DEVICE),
        Failure("b", 1, 2, "error: rank 1 on b is out of memory"),
    ],
)
def test_a_process_that_the_watchdog_ended_is_not_the_cause(cause: Failure) -> None:
    aborted = Failure("a", 0, -signal.SIGABRT, "Signal 6 (SIGABRT) received by PID 11")
    echo = Failure("c", 2, 1, REMOTE)
    assert root_cause([aborted, echo, cause]) is cause
    assert root_cause([echo, aborted]) is aborted, "an abort may have a cause of its own"
    assert "NCCL's watchdog" in aborted.text


def test_on_one_host_an_abort_goes_after_the_failure_that_came_later() -> None:
    aborted = worker_failure(-6, at=10.0)
    killed = worker_failure(-9, at=12.0)
    echo = worker_failure(1, at=9.0, message=REMOTE)
    assert first_cause([aborted, echo, killed]) is killed
    assert first_cause([aborted, echo]) is aborted


# ---- out of memory


def out_of_memory(clock: PhaseClock | None, phase: str, device: str = "cuda:1") -> UserError:
    said = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 14.57 GiB"
    world = World(3, 4, torch.device(device), host="gpu2")
    with pytest.raises(UserError) as caught, naming_lack_of_memory(world, 64, clock):
        if clock is None:
            raise torch.OutOfMemoryError(said)
        with clock.phase(phase):
            raise torch.OutOfMemoryError(said)
    return caught.value


def test_a_device_out_of_memory_is_named_with_rank_phase_and_the_setting_to_change() -> None:
    error = out_of_memory(PhaseClock(), COMPUTE)
    assert "rank 3 on gpu2 is out of memory on its device cuda:1, in compute: CUDA out" in str(
        error
    )
    assert "lower batch.micro (now 64)" in error.fix
    assert "another --run" in error.fix, "a run cannot go on with another batch.micro"
    assert "--procs" not in error.fix, "a device has one process"


def test_building_the_model_may_be_out_of_memory_too() -> None:
    assert "in start-up" in str(out_of_memory(None, ""))


def test_an_evaluation_out_of_memory_names_its_own_setting() -> None:
    assert out_of_memory(PhaseClock(), EVALUATE).fix.startswith("lower evaluate.batch")
    assert "--procs" in out_of_memory(PhaseClock(), COMPUTE, "cpu").fix


# ---- hangs

IN_READ = RankState("a", 0, 8, "compute", "nccl:all_reduce", 26, 0.5, collective_number=41)
STUCK = RankState("b", 1, 8, "compute", None, 26, 0.5)


def test_a_device_that_waits_in_a_collective_is_told_from_one_that_is_stuck_elsewhere() -> None:
    hang = find_hang([IN_READ, STUCK], hang_seconds=25, slowest_step_seconds=0.2)
    assert hang is not None
    assert hang.guilty == (STUCK,)


def test_where_all_wait_the_one_in_the_earliest_collective_is_named() -> None:
    behind = dataclasses.replace(IN_READ, host="b", rank=1, collective_number=40)
    ahead = dataclasses.replace(IN_READ, host="c", rank=2)
    hang = find_hang([IN_READ, behind, ahead], hang_seconds=25, slowest_step_seconds=0.2)
    assert hang is not None
    assert hang.guilty == (behind,)
    assert "rank 1 on b, step 8, compute, waiting in nccl:all_reduce number 40" in hang.text
    unknown = dataclasses.replace(behind, collective_number=None)
    everybody = find_hang([IN_READ, unknown], hang_seconds=25, slowest_step_seconds=0.2)
    assert everybody is not None
    assert len(everybody.guilty) == 2


def entry(number: int, state: str, retired: bool) -> dict[str, Any]:
    name = "nccl:all_reduce"
    return {
        "record_id": number,
        "time_created_ns": 1_000_000 * number,
        "collective_seq_id": number,
        "profiling_name": name,
        "state": state,
        "retired": retired,
    }


def test_the_oldest_collective_that_is_not_done_is_the_one_waited_for() -> None:
    done, late = entry(4, "completed", True), entry(5, "completed", False)
    running, queued = entry(6, "started", False), entry(7, "scheduled", False)
    assert first_pending([done, late, running, queued]) == PendingCollective("nccl:all_reduce", 6)
    assert first_pending([done, late]) is None
    assert first_pending([]) is None


def test_nccls_own_recorder_is_asked_beside_the_one_of_all_other_backends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A torch for CUDA has both, and NCCL's collectives are in its own alone."""
    gloo = {**entry(3, "scheduled", True), "profiling_name": "gloo:all_reduce"}
    recorders = {
        "_dump_fr_trace_json": {"entries": [gloo], "pg_status": {"0": {"last": 3}}},
        "_dump_nccl_trace_json": {"entries": [entry(41, "started", False)], "pg_status": {"0": {}}},
    }
    for name, told in recorders.items():
        dump = partial(dumped, json.dumps(told).encode())
        monkeypatch.setattr(torch._C._distributed_c10d, name, dump, raising=False)
    assert pending_collective() == PendingCollective("nccl:all_reduce", 41)
    oldest = flight.Pending.oldest(flight.recording())
    assert oldest is not None and (oldest.name, oldest.number) == ("all_reduce", 41)
    before = flight.states_of_groups(flight.recording())
    recorders["_dump_nccl_trace_json"]["pg_status"] = {"0": {"last": 41}}
    after = flight.states_of_groups(flight.joined(list(recorders.values())))
    assert before != after, "a collective that is done is a sign of life"


def dumped(told: bytes, _with_collectives: bool, _only_active: bool) -> bytes:
    return told


def test_the_flight_recorder_names_the_collective_of_a_process_that_waits_in_a_read(
    tmp_path: Path,
) -> None:
    """Two real processes: one has queued an all-reduce that the other does not join."""
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.flight_recording",
                str(tmp_path / "store"),
                rank,
                tmp_path,
            ],
            env={**os.environ, **speed_environment(2)},
        )
        for rank in ("0", "1")
    ]
    try:
        waiting, busy = beats_once_waiting(tmp_path)
    finally:
        (tmp_path / "over").touch()
        codes = [worker.wait(60) for worker in workers]
    assert codes == [0, 0]
    assert waiting["collective"] == "gloo:all_reduce"
    assert waiting["collective_number"] == 2
    assert busy["collective"] is None
    states = [
        dataclasses.replace(RankState.of(host, beat), quiet_seconds=26)
        for host, beat in (("a", waiting), ("b", busy))
    ]
    hang = find_hang(states, hang_seconds=25, slowest_step_seconds=0.0)
    assert hang is not None
    assert [state.rank for state in hang.guilty] == [1]


def beats_once_waiting(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = [folder / f"rank-0000{rank}.json" for rank in (0, 1)]
        if all(file.exists() for file in files):
            waiting, busy = (json.loads(file.read_text()) for file in files)
            if waiting["collective"] and busy["phase"] == COMPUTE:
                return waiting, busy
        time.sleep(0.1)
    raise AssertionError("rank 0 named no collective")
