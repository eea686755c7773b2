"""Open MPI over the lab's own sshd."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from paceline.hosts.ssh import ssh_options
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import environment, weights, words

pytestmark = pytest.mark.cluster


def mpirun(lab: PracticeLab, num_hosts: int) -> list[str]:
    """mpirun with the lab's keys; everything else as a user would type it."""
    hosts = lab.hosts[:num_hosts]
    options = " ".join(ssh_options(hosts[0])).replace('"', "")
    network = hosts[0].private_address.rpartition(".")[0] + ".0/24"
    return [
        "mpirun",
        "--allow-run-as-root",
        "-n",
        str(num_hosts),
        "-H",
        ",".join(host.private_address for host in hosts),
        "--mca",
        "plm_rsh_args",
        options,
        "--mca",
        "plm_rsh_no_tree_spawn",
        "1",
        "--mca",
        "oob_tcp_if_include",
        network,
        "-x",
        "OMP_NUM_THREADS",
        "-x",
        "PACELINE_PRACTICE",
    ]


def test_mpirun_trains_on_four_hosts_with_the_bits_of_one(
    lab: PracticeLab, pictures: Path, tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    command = [*mpirun(lab, 4), *words(pictures, tmp_path / "run", "steps=12")]
    done = subprocess.run(
        command,
        env=environment(PACELINE_PRACTICE=""),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "step 12/12" in done.stderr
    assert weights(tmp_path / "run") == undisturbed(4, 12)
    left = [path.name for path in (tmp_path / "run").glob(".meet*")]
    assert not left, "where the processes met is of no use any more"


def test_a_process_that_hangs_under_mpirun_is_named_and_the_job_ends(
    lab: PracticeLab, pictures: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    slow = environment(PACELINE_PRACTICE="compute=0.1")
    settings = ("steps=4000", "guard.hang_seconds=6")
    process = subprocess.Popen(
        [*mpirun(lab, 2), *words(pictures, run, *settings)],
        env=slow,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for_checkpoint(run, process)
        stop_a_worker(run, rank=1)
        began = time.monotonic()
        said, _ = process.communicate(timeout=60)
        assert time.monotonic() - began < 30
    finally:
        process.kill()
    assert process.returncode != 0
    assert "hang: rank 1 on node1" in said
    assert "waiting in all_reduce" in said, said
    assert 'train/step.py", line' in said, "the stacks"


def wait_for_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 90
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)


def stop_a_worker(run: Path, rank: int) -> None:
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            is_worker = "paceline.train.worker" in command and str(run) in command
            if is_worker and process.environ().get("RANK") == str(rank):
                process.send_signal(signal.SIGSTOP)
                return
        except psutil.Error:
            continue
    raise AssertionError("there is no such worker")
