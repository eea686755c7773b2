"""Training over ssh on the lab's hosts: started, followed, stopped, collected."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.launch.remote.collect import collect
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.record.story import read_story
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import RemoteRun, Start, environment, weights, words
from tests.test_hosts_collect import write_checkpoint

pytestmark = pytest.mark.cluster

Result = subprocess.CompletedProcess[str]


def paceline(*arguments: str, **changes: str) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(**changes),
    )


def test_four_hosts_train_as_four_processes_on_one(
    start: Start, undisturbed: Callable[..., str]
) -> None:
    run = start(4, "steps=12", practice="")
    assert run.finish() == 0, run.said
    assert "4 processes on node0, node1, node2, node3" in run.said
    assert "[node0] step 12/12" in run.said
    assert weights(run.run.path) == undisturbed(4, 12)
    for rank in range(4):
        begin = next(event for event in run.events(rank) if event["kind"] == "begin")
        assert (begin["world_size"], begin["num_hosts"], begin["interface"]) == (4, 4, "eth0")
    assert "step 12/12" in (run.run.path / "logs" / "node0.log").read_text(encoding="utf-8")
    story = read_story(run.run)
    assert sum(story.phases.values()) == pytest.approx(story.wall_seconds, rel=0.01)


def test_a_relative_path_means_on_the_hosts_what_it_means_here(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    data = Path(pictures.name)
    command = [*words(data, tmp_path / "run", "steps=2"), "--hosts", str(hosts)]
    command[command.index(f"data={data}")] = f"data=./{data}"
    done = subprocess.run(
        command,
        cwd=pictures.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_listens_on_any_address_but_the_private_one(start: Start, lab: PracticeLab) -> None:
    run = start(2, "steps=400")
    run.wait_for_steps(attempt=1)
    for host in lab.hosts[:2]:
        pids = {str(process.pid) for process in run.processes(host.name)}
        listening = lab.inside(host.name, "ss", "-Hltn").stdout.splitlines()
        addresses = {line.split()[3].rpartition(":")[0] for line in listening}
        assert pids
        assert addresses <= {host.private_address, "0.0.0.0", "[::]", "*"}  # noqa: S104
        wide = [line for line in listening if host.private_address not in line]
        assert all(line.split()[3].endswith(":22") for line in wide), "sshd alone"


def test_run_directories_of_their_own_are_collected_and_survive_the_first_host(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    """The launcher's directory is its own too: nothing is shared but the path."""
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 3)
    path = lab.local / "runs" / tmp_path.name
    slow, least = "compute=0.1", "hosts.min=2"
    run = RemoteRun.start(
        hosts, pictures, path, "steps=40", least, "guard.hang_seconds=8", practice=slow
    )
    try:
        there = lab.local_of("node1") / "runs" / tmp_path.name
        run.wait_for((there / "checkpoints" / "step-0000010").exists)
        lab.power_off("node0")
        assert run.finish() == 0, run.said
    finally:
        run.end()
    assert "lost node0" in run.said
    assert "collected from node1, node2" in run.said
    assert weights(path) == weights(there)
    steps = [event["step"] for event in read_story(RunDirectory(path)).of_kind("steps")]
    assert steps[-1] == 40
    assert steps == sorted(steps)


def test_a_link_cut_while_a_checkpoint_is_collected_leaves_none_that_is_torn(
    lab: PracticeLab, tmp_path: Path
) -> None:
    here = RunDirectory(lab.local / "runs" / tmp_path.name)
    there = RunDirectory(lab.local_of("node0") / "runs" / tmp_path.name)
    here.path.mkdir(parents=True)
    write_checkpoint(there, 10, num_bytes=4_000_000)
    lab.set_link("node0", "20Mbit")  # the 8 MB take three seconds
    said: list[str] = []
    collecting = threading.Thread(target=collect, args=(here, lab.hosts[:1], said.append))
    collecting.start()
    until = time.monotonic() + 20
    while not _some_bytes_have_arrived(here) and time.monotonic() < until:
        time.sleep(0.05)
    lab.cut("node0")
    collecting.join(60)
    assert "step-0000010" in said[-1] and "did not arrive whole" in said[-1]
    assert stored.all_checkpoints(here.checkpoints) == []
    assert list(here.path.glob(".collect-*")) == []

    lab.mend("node0")
    collect(here, lab.hosts[:1], said.append)
    assert stored.damage(here.checkpoints / "step-0000010") is None


def _some_bytes_have_arrived(run: RunDirectory) -> bool:
    files = run.path.glob(".collect-*/checkpoints/*/*.safetensors")
    return any(path.stat().st_size > 500_000 for path in files)


def test_a_detached_run_is_listed_followed_and_stopped_with_a_checkpoint(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "runs" / "a")
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "PACELINE_PRACTICE": "compute=0.1"}
    command = [*words(pictures, run.path, "steps=100000")[3:], "--hosts"]
    began = paceline(*command, str(lab.write_hosts(tmp_path / "h.yaml", 2)), "--detach", **state)
    assert began.returncode == 0, began.stderr
    assert f"paceline attach {run.path}" in began.stderr
    follower = subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "attach", str(run.path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**state),
    )
    until = time.monotonic() + 90
    while not list(run.checkpoints.glob("step-*")) and time.monotonic() < until:
        time.sleep(0.2)
    listed = paceline("runs", **state).stdout
    assert f"{run.path}  training  step" in listed
    stopped = paceline("stop", str(run.path), **state)
    assert stopped.returncode == 0, stopped.stderr
    said, _ = follower.communicate(timeout=30)
    assert "[node0] step" in said
    assert "stopped; saved at step" in said
    assert follower.returncode == 128 + signal.SIGTERM
    assert f"{run.path}  stopped  step" in paceline("runs", **state).stdout


def test_a_host_that_is_not_there_keeps_the_run_from_starting(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 3)
    lab.power_off("node2")
    result = paceline(*words(pictures, tmp_path / "run")[3:], "--hosts", str(hosts))
    assert result.returncode == 2
    assert "the run does not start" in result.stderr
    assert "node2" in result.stderr
    assert not list((tmp_path / "run").glob("events/rank-*"))


def test_a_mistake_ends_the_run_with_its_message_and_no_second_try(start: Start) -> None:
    run = start(2, "batch.global=32", "batch.micro=32", practice="")
    assert run.finish() == 2, run.said
    assert "too few for 2 processes" in run.said
    assert "fix: lower batch.micro" in run.said
    assert not run.launches()


def test_torchrun_and_variables_set_by_hand_are_honoured(pictures: Path, tmp_path: Path) -> None:
    run = tmp_path / "torchrun"
    inside = words(pictures, run, "steps=4")[2:]  # from `paceline.cli` on
    begin = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "--"]
    torchrun = [*begin, *inside]
    done = subprocess.run(
        torchrun, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    by_hand = tmp_path / "by-hand"
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29631"}
    processes = [
        subprocess.Popen(
            words(pictures, by_hand, "steps=4"),
            env=environment(**place, RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2"),
        )
        for rank in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert weights(run) == weights(by_hand)
