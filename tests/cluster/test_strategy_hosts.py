"""Parameter servers on many hosts: roles where they were placed, and faults that cost a share."""

import re
import signal
import time
from pathlib import Path

import pytest

from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import RemoteRun, Start, weights

pytestmark = pytest.mark.cluster

SERVERS = "strategy=parameter-server"


def losses(run: RunDirectory) -> list[float]:
    return [loss for line in steps_of(run) for loss in line["losses"]]


def steps_of(run: RunDirectory, rank: int = 0) -> list[Event]:
    return [e for e in read_events(run.rank_events(rank)) if e["kind"] == "steps"]


def begins(run: RemoteRun, rank: int) -> int:
    return sum(event["kind"] == "begin" for event in run.events(rank))


def test_in_step_over_hosts_a_lost_server_costs_a_round_and_no_bit(
    start: Start, lab: PracticeLab, pictures: Path
) -> None:
    """Placed for the user: every host trains and serves."""
    settings = [SERVERS, "steps=40", "guard.hang_seconds=8"]
    whole = start(2, *settings, practice="")
    assert whole.finish() == 0, whole.said
    assert "roles: node0: chief=1, server=1; node1: worker=1, server=1" in whole.said
    ring = start(2, "steps=40", practice="")
    assert ring.finish() == 0, ring.said
    assert losses(whole.run) == pytest.approx(losses(ring.run), rel=1e-5)

    run = start(2, *settings)
    run.wait_for_steps(attempt=1, more=8)
    for host in lab.hosts[:2]:
        listening = lab.inside(host.name, "ss", "-Hltn").stdout.splitlines()
        wide = [line for line in listening if host.private_address not in line]
        assert len(listening) > len(wide)
        assert all(line.split()[3].endswith(":22") for line in wide), "sshd alone"
    server = run.processes("node1", "paceline.train.worker")[-1]
    server.kill()
    run.wait_for_steps(attempt=2)
    assert "server 1 (rank 3) on node1 was killed by SIGKILL" in run.said
    chief = run.processes("node0", "paceline.train.worker")[0]
    chief.kill()
    run.wait_for_steps(attempt=3)
    assert "chief (rank 0) on node0 was killed by SIGKILL" in run.said
    assert run.finish() == 0, run.said
    assert weights(run.run.path) == weights(whole.run.path)


def test_out_of_step_a_lost_host_costs_its_share_and_joins_when_it_is_back(
    start: Start, lab: PracticeLab
) -> None:
    settings = [SERVERS, "strategy.mode=async", "steps=100000", "guard.hang_seconds=6"]
    run = start(3, *settings, "--roles=chief@node0,server@node0,worker@node1,worker@node2")
    run.wait_for_steps(attempt=1, more=12)
    assert "roles: node0: chief=1, server=1; node1: worker=1; node2: worker=1" in run.said

    run.worker("node1").kill()  # its own host starts it again
    run.wait_for(lambda: begins(run, 2) == 2)
    assert "worker 0 (rank 2, pid" in run.said

    lab.power_off("node2")
    run.wait_for(lambda: "lost node2 (worker 1): the others go on" in run.said)
    at_loss = run.step_of(1)
    run.wait_for(lambda: run.step_of(1) > at_loss + 10)
    lab.power_on("node2")
    run.wait_for(lambda: begins(run, 3) == 2)
    assert "node2 is back and joins" in run.said
    back = run.step_of(1)
    run.wait_for(lambda: run.step_of(1) > back + 10)
    assert len(run.launches()) == 1, "the round went on all the time"

    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130, run.said
    assert re.search(r"stopped; saved at step \d", run.said)
    for name in ("node0", "node1", "node2"):
        assert not run.processes(name), "processes were left behind"
    leases = [int(first) for line in steps_of(run.run) for first in line["leases"]]
    assert len(leases) == len(set(leases)), "a sample was trained twice"


def test_no_process_outlives_a_launcher_that_is_killed_and_the_chief_has_saved(
    start: Start,
) -> None:
    settings = [SERVERS, "strategy.mode=async", "steps=100000", "checkpoint.every_steps=null"]
    run = start(2, *settings)
    run.wait_for_steps(attempt=1, more=6)
    run.process.kill()
    run.process.wait()
    until = time.monotonic() + 60
    while any(run.processes(name) for name in ("node0", "node1")):
        assert time.monotonic() < until, "processes were left behind"
        time.sleep(0.2)
    assert list(run.run.checkpoints.glob("step-*"))


def test_run_directories_of_their_own_all_get_every_checkpoint(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(
        tmp_path / "hosts.yaml", 2, node0={"roles": "chief+server"}, node1={"roles": "worker"}
    )
    run = RemoteRun.start(hosts, pictures, lab.local / "run", SERVERS, "steps=15")
    try:
        assert run.finish() == 0, run.said
    finally:
        run.end()
    assert "roles: node0: chief+server=1; node1: worker=1" in run.said
    for name in ("node0", "node1"):
        saved = {path.name for path in (lab.local_of(name) / "run" / "checkpoints").iterdir()}
        assert {"step-0000010", "step-0000015"} <= saved, name
    assert begins(run, 1) == 1, "events of all hosts were collected"


def test_roles_on_a_host_that_the_file_does_not_name_are_refused_before_any_login(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    run = RemoteRun.start(
        hosts, pictures, tmp_path / "run", SERVERS, "steps=5", "--roles=chief@node0,server@node7"
    )
    assert run.finish() == 2
    assert "'node7', which the hosts file does not name" in run.said
    assert not (tmp_path / "run").exists()
