"""Faults on many hosts: the run goes on by itself and ends with the same bits, or says why not."""

import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import RemoteRun, Start, weights
from tests.cluster.test_doctor import python_that_says, slow_import

pytestmark = pytest.mark.cluster


def test_a_killed_worker_a_stopped_one_and_a_host_that_lost_its_processes_cost_no_bit(
    start: Start, undisturbed: Callable[..., str]
) -> None:
    run = start(2, "steps=60", "guard.hang_seconds=6")
    run.wait_for_steps(attempt=1, more=7)
    with_torch = run.processes("node1", "paceline.launch.forkserver")
    run.worker("node1").kill()
    run.wait_for_steps(attempt=2)
    assert "rank 1 on node1 was killed by SIGKILL" in run.said
    assert run.processes("node1", "paceline.launch.forkserver") == with_torch, "no second import"

    run.worker("node1").send_signal(signal.SIGSTOP)
    seconds = run.wait_for(lambda: "hang: rank 1 on node1" in run.said)
    assert seconds < 30
    run.wait_for_steps(attempt=3)
    hang = run.said.partition("hang:")[2]
    assert "waiting in all_reduce" in hang.partition("starting again")[0]
    for host in ("node0", "node1"):
        assert f'[{host}]   File "' in hang, "every process's stack"

    run.send_all("node1", signal.SIGKILL)
    run.wait_for_steps(attempt=4)
    assert run.finish() == 0, run.said
    assert weights(run.run.path) == undisturbed(2, 60)
    assert "lost node1" in run.said
    assert [launch["attempt"] for launch in run.launches()] == [1, 2, 3, 4]


def test_with_a_least_number_of_hosts_a_lost_one_is_done_without_and_taken_in_again(
    start: Start, lab: PracticeLab
) -> None:
    run = start(3, "steps=400", "guard.hang_seconds=8", "guard.return_seconds=8", "hosts.min=2")
    run.wait_for_steps(attempt=1, more=6)
    lab.power_off("node0")  # the first host: the processes met there
    run.wait_for_steps(attempt=2)
    assert "lost node0" in run.said
    assert run.launches()[1]["hosts"] == ["node1", "node2"]

    lab.power_on("node0")
    run.wait_for_steps(attempt=3)
    assert "node0 is back and joins" in run.said
    assert run.launches()[2]["hosts"] == ["node0", "node1", "node2"]

    run.send_all("node1", signal.SIGTERM)  # a spot notice
    run.wait_for_steps(attempt=4)
    assert "node1 was told to leave" in run.said
    assert run.launches()[3]["hosts"] == ["node0", "node2"]

    lab.cut("node2")  # for good, and one too many
    assert run.finish() == 1, run.said
    last = run.said.rpartition("the run ends: ")[2]
    assert "node1, node2 did not come back within 8 s; 1 of 3 hosts are left" in last
    assert "saved at step" in last
    assert "Go on with:" in last


def test_a_spot_notice_ends_a_run_that_needs_every_host_with_a_checkpoint(start: Start) -> None:
    run = start(2, "steps=4000", "checkpoint.every_steps=null")
    run.wait_for_steps(attempt=1)
    run.send_all("node1", signal.SIGTERM)
    assert run.finish() == 143, run.said
    last = max(event["step"] for event in run.events() if event["kind"] == "steps")
    assert "node1 was told to leave" in run.said
    assert f"saved at step {last:,}" in run.said


def test_a_link_cut_for_ten_seconds_is_waited_for(
    start: Start, lab: PracticeLab, undisturbed: Callable[..., str]
) -> None:
    run = start(2, "steps=60")
    run.wait_for_steps(attempt=1, more=6)
    lab.cut("node1")
    time.sleep(10)
    lab.mend("node1")
    assert run.finish() == 0, run.said
    assert len(run.launches()) == 1, run.said
    assert weights(run.run.path) == undisturbed(2, 60)


def test_a_rank_out_of_memory_is_named_with_its_host_its_phase_and_the_remedy(start: Start) -> None:
    run = start(2, "steps=400", "evaluate.every_steps=30", "evaluate.batch=200")
    run.wait_for_steps(attempt=1, more=3)
    worker = run.worker("node1")
    used_bytes = worker.memory_info().vms
    worker.rlimit(psutil.RLIMIT_AS, (used_bytes, resource.RLIM_INFINITY))
    assert run.finish() == 2, run.said
    assert re.search(r"rank 1 on node1 is out of memory, in (compute|evaluate): ", run.said)
    assert "lower batch.micro (now 8)" in run.said
    assert len(run.launches()) == 1, "trying again would not help"


def test_the_run_directory_may_be_gone_for_twenty_seconds(
    start: Start, undisturbed: Callable[..., str]
) -> None:
    run = start(2, "steps=60")
    run.wait_for_steps(attempt=1, more=6)
    path = run.run.path
    path.rename(path.with_name("away"))
    time.sleep(20)
    assert not path.exists(), "nothing was written to where it had been"
    path.with_name("away").rename(path)
    assert run.finish() == 0, run.said
    assert len(run.launches()) == 1, run.said
    assert weights(path) == undisturbed(2, 60)


def test_no_process_outlives_a_launcher_that_is_killed(start: Start) -> None:
    run = start(2, "steps=4000")
    run.wait_for_steps(attempt=1)
    processes = [p for host in ("node0", "node1") for p in run.processes(host)]
    assert len(processes) >= 6, "a supervisor, an agent and a worker on each host"
    run.process.kill()
    _, alive = psutil.wait_procs(processes, timeout=40)
    assert not alive
    step = max(event["step"] for event in run.events() if event["kind"] == "steps")
    assert (run.run.checkpoints / f"step-{step:07d}").is_dir(), "saved before it ended"


def test_the_same_fault_twice_at_the_same_step_ends_the_run_with_its_name(start: Start) -> None:
    run = start(2, "steps=4000", practice="compute=3")  # else it has moved on before the kill
    kill_at_once(run, "node1")
    run.wait_for(lambda: len(run.launches()) == 2)
    kill_at_once(run, "node1")
    assert run.finish() == 1, run.said
    assert "the same happened before at the same step" in run.said
    assert "nothing was saved yet. Go on with:" in run.said


def start_with_slow_import(lab: PracticeLab, data: Path, folder: Path, *settings: str) -> RemoteRun:
    """Two hosts, of which the second takes 12 s to import torch, but for the doctor, whose
    look at it would delay the start as long."""
    slow = python_that_says(lab.shared / "slow", slow_import(12, "paceline.launch.forkserver"))
    hosts = lab.write_hosts(folder / "hosts.yaml", 2, node1={"python": str(slow)})
    return RemoteRun.start(hosts, data, folder / "run", "steps=6", *settings)


def test_a_host_that_imports_torch_longer_than_the_join_time_is_named_and_waited_for(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    run = start_with_slow_import(lab, pictures, tmp_path, "guard.join_seconds=4")
    try:
        assert run.finish() == 0, run.said
    finally:
        run.end()
    news = next(line for line in run.said.splitlines() if "waiting for hosts to join" in line)
    assert "node1: importing torch from /" in news
    assert len(run.launches()) == 1


def test_a_host_that_shows_no_progress_while_joining_ends_the_run_with_its_name(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    run = start_with_slow_import(lab, pictures, tmp_path, "guard.join_seconds=1")
    try:
        assert run.finish() == 1, run.said
    finally:
        run.end()
    assert "fault: node1 not joined, and no progress for" in run.said
    assert "node1: importing torch from /" in run.said
    assert "round 2: " in run.said and "round 3: " not in run.said, "once more, not five times"


def kill_at_once(run: RemoteRun, host: str) -> None:
    """As soon as there is a worker that has told where it is."""
    known = run.said.count("was killed by SIGKILL")
    run.wait_for(lambda: bool(run.processes(host, "paceline.train.worker")))
    worker = run.worker(host)
    rank = int(host.removeprefix("node"))
    run.wait_for(lambda: newest_pulse(rank) >= worker.create_time())
    worker.kill()
    run.wait_for(lambda: run.said.count("was killed by SIGKILL") > known)


def newest_pulse(rank: int) -> float:
    """When this process, of any run here, last told where it is."""
    told = Path(tempfile.gettempdir()).glob(f"paceline-*/round/rank-{rank:05d}.json")
    return max((path.stat().st_mtime for path in told), default=0.0)
