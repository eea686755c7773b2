"""`reduce` on hosts of the lab: slow links, storage of their own, processes that are killed."""

import subprocess
from pathlib import Path

import pytest

from paceline.record.events import read_events
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import RemoteRun, Start, environment, weights, words

pytestmark = pytest.mark.cluster

DILOCO = ["reduce=diloco", "reduce.every=12", "reduce.parts=2", "steps=40"]


def test_what_hosts_have_not_exchanged_yet_survives_on_storage_of_their_own(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    command = [*words(pictures, alone, *DILOCO), "--procs", "2"]
    subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=200)

    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    path = lab.local / "runs" / tmp_path.name
    run = RemoteRun.start(hosts, pictures, path, *DILOCO, practice="compute=0.1")
    try:
        there = lab.local_of("node1") / "runs" / tmp_path.name / "checkpoints"
        run.wait_for((there / "step-0000010").exists)
        run.worker("node1").kill()
        assert run.finish() == 0, run.said
    finally:
        run.end()
    assert "rank 1 on node1 was killed by SIGKILL" in run.said
    assert "had agreed on" not in run.said, "every process found its own state again"
    assert weights(path) == weights(alone)


def test_on_slow_links_auto_finds_a_way_and_a_run_that_goes_on_keeps_it(
    lab: PracticeLab, start: Start
) -> None:
    for host in lab.hosts[:2]:
        lab.set_link(host.name, "5Mbit")
    settings = ["steps=500", "reduce=auto", "reduce.may_change_result=true"]
    run = start(2, *settings, practice="")
    run.wait_for_steps(attempt=1, more=20, seconds=150)
    begin = next(event for event in run.events() if event["kind"] == "begin")
    assert begin["reduce"] not in ("plain", "overlap")
    assert f"reduce: auto takes {begin['reduce']}" in run.said
    run.worker("node0").kill()
    run.wait_for_steps(attempt=2, seconds=150)
    kinds = [event["kind"] for event in read_events(run.run.rank_events(0))]
    assert kinds.count("reduce") == 1 and kinds.count("begin") == 2


def test_hosts_that_are_slower_than_one_are_said_to_be(lab: PracticeLab, start: Start) -> None:
    for host in lab.hosts[:2]:
        lab.set_link(host.name, "2Mbit")
    run = start(2, "steps=12", practice="")
    assert run.finish() == 0, run.said
    assert "warning: 2 hosts are slower than one" in run.said


def test_a_step_that_the_network_takes_long_for_is_no_hang(lab: PracticeLab, start: Start) -> None:
    """1.1 MB of gradients need 4.3 s."""
    for host in lab.hosts[:2]:
        lab.set_link(host.name, "2Mbit")
    run = start(2, "steps=4", "model.depth=20", "guard.hang_seconds=3", practice="")
    assert run.finish() == 0, run.said
    assert "hang: " not in run.said
