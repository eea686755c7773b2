"""Real slurmctld and slurmd, one per host of the lab."""

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.lab import cluster as practice
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.cluster.conftest import PracticeLab
from tests.cluster.remote_run import environment, weights, words

pytestmark = pytest.mark.cluster

_CONFIGURATION = """
ClusterName=lab
SlurmctldHost={first}({first_address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=20
SchedulerParameters=sched_interval=2,bf_interval=5
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    lab: PracticeLab
    folder: Path

    def command(self, *words: str, host: str = "node0", **changes: str) -> list[str]:
        variables = {"SLURM_CONF": str(self.folder / "slurm.conf"), **changes}
        settings = [f"{name}={value}" for name, value in variables.items()]
        return practice.enter(self.lab.directory, host, ["env", *settings, *words])

    def __call__(
        self, *words: str, host: str = "node0", **changes: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, host=host, **changes),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(),
        )

    def start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = [f"--{name}-file={self.folder}/munged.{name}" for name in ("pid", "log", "seed")]
        socket = f"--socket={self.folder}/munge.sock"
        subprocess.run(["munged", "--force", f"--key-file={key}", socket, *files], check=True)
        self._configure()
        assert self("slurmctld").returncode == 0
        for host in self.lab.hosts[:2]:
            assert self("slurmd", "-N", host.name, host=host.name).returncode == 0
        until = time.monotonic() + 30
        while "idle" not in self("sinfo", "-h", "-o", "%T").stdout:
            assert time.monotonic() < until, (self.folder / "node0.log").read_text()
            time.sleep(0.5)

    def _configure(self) -> None:
        hosts = self.lab.hosts[:2]
        nodes = [f"NodeName={h.name} NodeAddr={h.private_address} CPUs=2" for h in hosts]
        for name in ("state", *(f"spool/{host.name}" for host in hosts)):
            (self.folder / name).mkdir(parents=True)
        text = _CONFIGURATION.format(
            first=hosts[0].name,
            first_address=hosts[0].private_address,
            folder=self.folder,
            nodes="\n".join(nodes),
        )
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")

    def end_daemons(self) -> None:
        """Those in the hosts have other process numbers inside; they are ended from there."""
        self("sh", "-c", f"kill $(cat {self.folder}/slurmctld.pid)")
        for host in self.lab.hosts[:2]:
            self("sh", "-c", f"kill $(cat {self.folder}/{host.name}.pid)", host=host.name)
        munged = self.folder / "munged.pid"
        subprocess.run(["sh", "-c", f"kill $(cat {munged})"], check=False)


@pytest.fixture
def slurm(lab: PracticeLab, tmp_path: Path) -> Iterator[Slurm]:
    folder = Path(f"{lab.directory}/slurm-{tmp_path.name}")
    folder.mkdir(mode=0o755)
    cluster = Slurm(lab, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end_daemons()


def test_srun_trains_on_two_nodes_with_the_bits_of_one(
    slurm: Slurm, pictures: Path, tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    srun = ["srun", "-N2", "--ntasks-per-node=1", *words(pictures, tmp_path / "run", "steps=12")]
    done = slurm(*srun, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "run") == undisturbed(2, 12)


def test_the_batch_script_saves_goes_back_into_the_queue_and_goes_on(
    slurm: Slurm, pictures: Path, tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    run, script = RunDirectory(tmp_path / "run"), tmp_path / "job.sh"
    command = words(pictures, run.path, "steps=60")
    train = command.index("train")
    written = slurm(
        *command[:train],
        "launch",
        "slurm",
        *command[train + 1 :],
        "--nodes",
        "2",
        "--time",
        "30",
        "--to",
        str(script),
    )
    assert written.returncode == 0, written.stderr
    assert "to start at" in written.stderr, "Slurm itself has looked at it"
    slow = {"OMP_NUM_THREADS": "1", "PACELINE_PRACTICE": "compute=0.1"}
    job = slurm("sbatch", "--parsable", str(script), **slow).stdout.strip()
    log = run.path / f"slurm-{job}.log"
    wait_until(lambda: bool(list(run.checkpoints.glob("step-*"))), log)
    slurm("scancel", "--batch", "--signal=USR1", job)  # what Slurm sends before the time is over
    wait_until(lambda: "PENDING" in slurm("squeue", "-h", "-o", "%T").stdout, log)
    assert "saving, then back into the queue" in log.read_text(encoding="utf-8")
    # Slurm holds a job that is put back for as long as its credentials live, `cred_expire`.
    wait_until(lambda: has_ended_again(run), log, seconds=240)
    launches = [e for e in read_events(run.launcher_events) if e["kind"] == "launch"]
    assert len(launches) == 2
    begins = [e["step"] for e in read_events(run.rank_events(0)) if e["kind"] == "begin"]
    assert begins[1] > 0, "it went on"
    assert weights(run.path) == undisturbed(2, 60)


SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"task {sys.argv[1]}: rank {dist.get_rank()} of {total.item():.0f}", flush=True)
while os.path.exists(sys.argv[2]):
    time.sleep(0.2)
dist.destroy_process_group()
"""


def test_an_array_of_a_users_script_is_a_world_per_number_and_a_task_puts_only_itself_back(
    slurm: Slurm, tmp_path: Path
) -> None:
    script, waiting = tmp_path / "train.py", tmp_path / "waiting"
    script.write_text(SCRIPT, encoding="utf-8")
    waiting.touch()
    job_file = tmp_path / "job.sh"
    options = ["--hosts", "2", "--array", "1-2", "--time", "30", "--to", str(job_file)]
    options += ["--run", str(tmp_path / "run")]
    launch = [sys.executable, "-m", "paceline.cli", "launch", "slurm", *options]
    written = slurm(*launch, "--", str(script), "%a", str(waiting))
    assert written.returncode == 0, written.stderr
    assert "to start at" in written.stderr, "Slurm itself has looked at it"
    # Gloo asks for the interface of a host's own name, which the lab's hosts do not resolve.
    job = slurm("sbatch", "--parsable", str(job_file), GLOO_SOCKET_IFNAME="eth0").stdout.strip()
    logs = [tmp_path / f"run-{number}" for number in (1, 2)]

    def is_a_world(number: int) -> bool:
        said = log_in(logs[number - 1])
        return all(f"task {number}: rank {rank} of 2" in said for rank in (0, 1))

    # The nodes are given out whole, so that the second task waits for the first to be put back.
    wait_until(lambda: is_a_world(1), logs[0] / "log", seconds=180)
    slurm("scancel", "--batch", "--signal=USR1", f"{job}_1")
    wait_until(lambda: is_a_world(2), logs[1] / "log", seconds=180)
    assert "saving, then back into the queue" in log_in(logs[0])
    states = slurm("squeue", "--noheader", "--array", "--format=%i %T").stdout
    assert f"{job}_1 PENDING" in states and f"{job}_2 RUNNING" in states
    waiting.unlink()
    slurm("scancel", job)


def log_in(folder: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in folder.glob("slurm-*.log"))


def has_ended_again(run: RunDirectory) -> bool:
    """By the run's own word: for a moment, squeue does not list a job that is put back."""
    exits = [event for event in read_events(run.launcher_events) if event["kind"] == "exit"]
    return len(exits) == 2


def wait_until(so: Callable[[], bool], log: Path, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not so():
        said = log.read_text(encoding="utf-8") if log.exists() else "(no log yet)"
        assert time.monotonic() < until, said
        time.sleep(0.5)
