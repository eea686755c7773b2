"""Ten faults of a script that knows nothing of Paceline: each is named within 30 s.

Hugging Face's Trainer goes through the same ten where `transformers` is installed and
PACELINE_TEST_FRAMEWORKS is set: `make test-cluster` has no time for both.
"""

import logging
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import PracticeLab
from tests.cluster.script_run import ScriptRun

pytestmark = pytest.mark.cluster

MOST_SECONDS = 30.0
SCRIPTS = ["ddp.py"]
if os.environ.get("PACELINE_TEST_FRAMEWORKS"):
    SCRIPTS.append("hugging_face.py")


@dataclass(frozen=True)
class Fault:
    """What goes wrong inside of the script in its fifth step."""

    name: str
    said: str
    """What must be said about it, as a regular expression."""
    words: tuple[str, ...]
    since: str = "rank 1] step 4\n"
    """What is printed right before."""


FAULTS = [
    Fault(
        "memory",
        r"fault: rank 1 on node1 is out of memory.* at step 5 \(exit code 1\)\n  fix: lower the "
        r"script's batch size",
        ("--trouble", "memory"),
    ),
    Fault(
        "exception",
        r"fault: rank 1 on node1 failed.* at step 5 \(exit code 1\)\nTraceback(.*\n)+?"
        r"ValueError: a label is out of range",
        ("--trouble", "exception"),
    ),
    Fault(
        "leaves early",
        r"rank 1 on node1(, step 5, .*: has ended| after step 5: left early).*exit code 0",
        ("--trouble", "leave"),
    ),
    Fault(
        "disk full",
        r"fault: rank 0 on node0 could not write a file, because the disk is full"
        r".*; full there: .*small",
        ("--save", "SMALL"),
        since="rank 0] step 9\n",
    ),
    Fault(
        "mismatched collectives",
        r"hang: the processes are in different collectives: rank 0 on node0 in all_\w+ number "
        r"(\d+) of .*; rank 1 on node1 in broadcast number \1 of \[\[7\]\]",
        ("--trouble", "mismatch"),
    ),
    Fault(
        "never starts",
        r"hang: rank 1 on node1, step 0, start-up, at trouble.py:\d+ in before_start: has not "
        r"come; waiting: rank 0 on node0 in init_process_group",
        ("--trouble", "never"),
        since="rank 1] waits for something",
    ),
]


def named_in(run: ScriptRun, pattern: str, fault: str) -> float:
    """After how many seconds that was said."""
    seconds = run.wait_for(lambda said: re.search(pattern, said) is not None)
    logging.getLogger(__name__).info("%s: %s in %.1f s", run.script, fault, seconds)
    return seconds


@pytest.fixture
def small_disk(lab: PracticeLab) -> Iterator[Path]:
    """On node0: a file system of 8 MB."""
    path = lab.local / "small"
    lab.inside("node0", "mkdir", "-p", str(path))
    mounted = lab.inside("node0", "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path))
    assert mounted.returncode == 0, mounted.stderr
    yield path
    lab.inside("node0", "umount", "-l", str(path))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_inside_of_a_script_is_named_within_30_seconds(
    lab: PracticeLab, small_disk: Path, tmp_path: Path, fault: Fault, script: str
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    words = [str(small_disk) if word == "SMALL" else word for word in fault.words]
    run = ScriptRun.start(hosts, tmp_path / "run", script, *words)
    try:
        run.wait_for(lambda said: fault.since in said)
        assert named_in(run, fault.said, fault.name) < MOST_SECONDS
        if "hang:" in run.said:
            run.wait_for(lambda _: (run.run.path / "stacks/rank-00000.txt").exists(), 5)
    finally:
        run.end()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_worker_or_a_host_that_is_gone_is_named_within_30_seconds_and_restarts_tell_the_loss(
    lab: PracticeLab, tmp_path: Path, script: str
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    saved = tmp_path / "saved"
    saved.mkdir()
    options = ("--restarts", "2", "--", "--save", str(saved))
    run = ScriptRun.start(hosts, tmp_path / "run", script, *options)
    try:
        run.wait_for(lambda said: "rank 1] step 9\n" in said)
        run.worker(1).kill()
        killed = r"fault: rank 1 on node1 was killed by SIGKILL"
        assert named_in(run, killed, "killed") < MOST_SECONDS
        run.wait_for(lambda said: "round 2: " in said)
        assert re.search(r"last saved at step \d+ \(.*\): if it resumes from there", run.said)

        run.wait_for(lambda said: said.count("rank 1] step 4\n") == 2)
        run.worker(1).send_signal(signal.SIGSTOP)
        stopped = r"hang: rank 1 on node1, step \d+, .*stopped \(SIGSTOP\).*kill -CONT \d+"
        assert named_in(run, stopped, "stopped") < MOST_SECONDS
        run.worker(1).send_signal(signal.SIGCONT)
        run.wait_for(lambda said: said.count("rank 1] step 9\n") == 2)

        lab.cut("node1")
        lost = r"(?s)(fault: lost node1 \(rank 1 on node1, step.*){%d}"
        assert named_in(run, lost % 1, "link cut") < MOST_SECONDS
        lab.mend("node1")
        run.wait_for(lambda said: said.count("rank 1] step 4\n") == 3)
        lab.power_off("node1")
        assert named_in(run, lost % 2, "host lost") < MOST_SECONDS
        assert run.finish() == 1
        assert "the run ends: 3 faults in a row" in run.said
    finally:
        lab.mend("node1")
        run.end()
