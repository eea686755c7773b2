"""Slow links between real network stacks: found, with the right share, and the bytes counted.

What the report says is held against what can be seen from outside of the run: the kernel's account
of how long the workers slept, and the counters of the hosts' interfaces.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import psutil
import pytest

from paceline.report.answers import answers
from paceline.report.facts.facts import Options
from paceline.report.own.run import read_run
from paceline.units import parse_link_speed
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import RemoteRun, Start

pytestmark = pytest.mark.cluster

# 4.8 MB of gradients, and as little arithmetic as a batch can have.
WIDE = ["model.widths=[64,128,256]", "checkpoint.every_steps=null", "log.probe_seconds=1"]
POINTS = 0.05


def sent_bytes(lab: PracticeLab, host: str) -> int:
    """By the interface's own counter, read in the host but not by the run."""
    for line in lab.inside(host, "cat", "/proc/net/dev").stdout.splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            return int(counts.split()[8])
    raise AssertionError(f"{host} has no eth0")


@dataclass(frozen=True)
class Account:
    """The kernel's account of a worker's main thread."""

    wall: float
    running: float
    queueing: float
    """Ready to run, but others had the processor."""

    @classmethod
    def of(cls, worker: psutil.Process) -> "Account":
        stat = Path(f"/proc/{worker.pid}/task/{worker.pid}/schedstat").read_text(encoding="ascii")
        running, queueing, _ = map(int, stat.split())
        return cls(time.monotonic(), running / 1e9, queueing / 1e9)

    def shares_until(self, later: "Account") -> tuple[float, float]:
        """Sleeping for certain, and sleeping at most: a thread whose data has come queues for a
        processor while it still waits, and on a busy machine that takes long."""
        wall = later.wall - self.wall
        awake = (later.running - self.running) / wall
        return 1 - awake - (later.queueing - self.queueing) / wall, 1 - awake


def slept_shares(run: RemoteRun, hosts: list[str], last_step: int) -> tuple[float, float]:
    """Of the workers' time from the first step on: the least and the most, means over hosts."""
    run.wait_for(lambda: run.step_of(1) >= 1)
    workers = [run.worker(host) for host in hosts]
    before = [Account.of(worker) for worker in workers]
    after = before
    while run.step_of(1) < last_step and all(worker.is_running() for worker in workers):
        try:
            after = [Account.of(worker) for worker in workers]
        except FileNotFoundError:
            break
        time.sleep(0.02)
    shares = [one.shares_until(two) for one, two in zip(before, after, strict=True)]
    return mean(least for least, _ in shares), mean(most for _, most in shares)


@pytest.mark.parametrize(("link", "num_steps"), [("100Mbit", 25), ("1Gbit", 60)])
def test_a_slow_link_is_found_with_its_share(
    start: Start, lab: PracticeLab, link: str, num_steps: int
) -> None:
    hosts = ["node0", "node1"]
    for host in hosts:
        lab.set_link(host, link)
    small = ["batch.global=2", "batch.micro=1"]
    run = start(2, f"steps={num_steps}", *WIDE, *small, practice="")
    least, most = slept_shares(run, hosts, num_steps)
    assert run.finish() == 0, run.said
    found = read_run(run.run.path).verdict
    assert least - POINTS < found.shares["network"] < most + POINTS
    assert found.word == "network"
    # A step waits for all that the link cannot bring while backward goes on.
    wire_seconds = 8 * 4.8e6 / parse_link_speed(link)
    hidden_seconds = found.shares["compute"] * found.step_seconds
    assert found.shares["network"] * found.step_seconds > 0.9 * (wire_seconds - hidden_seconds)
    speeds = [host.link_bits_per_second for host in read_run(run.run.path).world.hosts]
    assert speeds == [parse_link_speed(link)] * 2


@pytest.mark.parametrize("num_hosts", [2, 4])
def test_the_report_counts_the_bytes_that_the_interfaces_count(
    start: Start, lab: PracticeLab, num_hosts: int
) -> None:
    hosts = [f"node{number}" for number in range(num_hosts)]
    small = [f"batch.global={num_hosts}", "batch.micro=1", "steps=40"]
    run = start(num_hosts, *small, *WIDE, practice="compute=0.1")
    run.wait_for_steps(attempt=1, more=5)
    before, first = [sent_bytes(lab, host) for host in hosts], run.step_of(1)
    run.wait_for(lambda: run.step_of(1) >= 35)
    after, last = [sent_bytes(lab, host) for host in hosts], run.step_of(1)
    assert run.finish() == 0, run.said
    outside = (sum(after) - sum(before)) / num_hosts / (last - first)
    facts = read_run(run.run.path, Options(1e9, None))
    figures = next(a.figures for a in answers(facts) if a.key == "traffic")
    assert figures["measured_bytes_per_step"] == pytest.approx(outside, rel=0.05)
    assert figures["predicted_bytes_per_step"] == pytest.approx(outside, rel=0.10)
