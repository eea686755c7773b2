"""What job files say, started on the lab's hosts with the variables that each engine sets."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from paceline.lab import cluster as practice
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import SETTINGS, environment, weights

pytestmark = pytest.mark.cluster

POD = ("--image", "example/paceline:1")
MACHINES = {
    "sky": ("--type", "c5.large"),
    "dstack": ("--type", "c5.large", *POD),
    "kubernetes": POD,
    "vertex": ("--type", "n1-standard-4", *POD),
}
FILE_OF = {"tf_config": "vertex"}
"""TF_CONFIG is set by many; the line of any file joins by it."""


def variables(kind: str, addresses: list[str], rank: int) -> dict[str, str]:
    """As the engines set them; tests/test_place.py says from where that is known."""
    first, every, count = addresses[0], "\n".join(addresses), str(len(addresses))
    pools = {"workerpool0": [f"{first}:2222"], "workerpool1": [f"{a}:2222" for a in addresses[1:]]}
    task = {"type": "workerpool1" if rank else "workerpool0", "index": max(rank - 1, 0)}
    old = {"chief": pools["workerpool0"], "worker": pools["workerpool1"]}
    old_task = {"type": "worker" if rank else "chief", "index": max(rank - 1, 0)}
    return {
        "sky": {
            "SKYPILOT_NODE_IPS": every,
            "SKYPILOT_NUM_NODES": count,
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NUM_GPUS_PER_NODE": "0",
            "SKYPILOT_TASK_ID": "sky-managed-1-0",
        },
        "dstack": {
            "DSTACK_RUN_NAME": "train",
            "DSTACK_NODES_IPS": every,
            "DSTACK_MASTER_NODE_IP": first,
            "DSTACK_NODE_RANK": str(rank),
            "DSTACK_NODES_NUM": count,
            "DSTACK_GPUS_PER_NODE": "0",
        },
        "kubernetes": {
            "PET_NNODES": count,
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": "29500",
        },
        "vertex": {"CLUSTER_SPEC": json.dumps({"cluster": pools, "task": task})},
        "tf_config": {"TF_CONFIG": json.dumps({"cluster": old, "task": old_task})},
    }[kind]


def file_of(kind: str) -> str:
    return FILE_OF.get(kind, kind)


def command_in(kind: str, text: str) -> list[str]:
    """The line that the job file has every host run."""
    last = list(yaml.safe_load_all(text))[-1]
    if kind == "sky":
        return ["sh", "-c", last["run"]]
    if kind == "dstack":
        return ["sh", "-c", " && ".join(last["commands"])]
    if kind == "kubernetes":
        return [str(word) for word in last["spec"]["trainer"]["command"]]
    container: dict[str, Any] = last["workerPoolSpecs"][0]["containerSpec"]
    return [*container["command"], *container["args"]]


@dataclass
class Engine:
    """Starts a job file's line on the first hosts of the lab, and again when it is told to."""

    lab: PracticeLab
    kind: str
    words: list[str]
    log: Path
    directory: Path | None = None
    """Where the engine has put the user's files."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, **changes: str) -> None:
        hosts = self.lab.hosts[:2]
        addresses = [host.private_address for host in hosts]
        bin_directory = Path(sys.executable).parent  # where the image has `paceline`
        path = f"{bin_directory}:{os.environ['PATH']}"
        self.processes = []
        for rank, host in enumerate(hosts):
            told = {**variables(self.kind, addresses, rank), "PATH": path}
            settings = [f"{name}={value}" for name, value in told.items()]
            place = [f"--chdir={self.directory}"] if self.directory else []
            words = ["env", *place, *settings, *self.words]
            entered = practice.enter(self.lab.directory, host.name, words)
            with self.log.open("ab") as log:
                self.processes.append(
                    subprocess.Popen(
                        entered,
                        env=environment(**changes),
                        stdout=log,
                        stderr=log,
                    )
                )

    def wait(self, seconds: float = 120) -> list[int]:
        until = time.monotonic() + seconds
        return [process.wait(max(0.1, until - time.monotonic())) for process in self.processes]

    def wait_for_checkpoint(self, run: RunDirectory) -> None:
        self.wait_until(lambda: bool(list(run.checkpoints.glob("step-*"))))

    def wait_until(self, so: Callable[[], bool]) -> None:
        until = time.monotonic() + 120
        while not so():
            assert time.monotonic() < until, self.said
            assert all(process.poll() is None for process in self.processes), self.said
            time.sleep(0.2)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """With all that they have started: what enters a host is not what runs there."""
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                for inside in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        inside.kill()
            process.kill()
            process.wait()


@pytest.fixture
def engine(
    lab: PracticeLab, pictures: Path, tmp_path: Path, command: Callable[..., Result]
) -> Iterator[Callable[..., Engine]]:
    begun: list[Engine] = []

    def starts(kind: str, *settings: str) -> Engine:
        words = [f"data={pictures}", *SETTINGS, "guard.hang_seconds=6", *settings]
        options = ("--hosts", "2", *MACHINES[file_of(kind)], "--run", str(tmp_path / "run"))
        written = command("launch", file_of(kind), "cifar10-tiny", *words, *options)
        assert written.returncode == 0, written.stderr
        line = command_in(file_of(kind), written.stdout)
        begun.append(Engine(lab, kind, line, tmp_path / "log"))
        return begun[-1]

    yield starts
    for one in begun:
        one.end()


@pytest.mark.parametrize("kind", ["sky", "kubernetes", "tf_config"])
def test_a_host_is_lost_the_engine_starts_both_again_and_the_run_goes_on_exactly(
    kind: str,
    engine: Callable[..., Engine],
    lab: PracticeLab,
    tmp_path: Path,
    undisturbed: Callable[..., str],
) -> None:
    run, job = RunDirectory(tmp_path / "run"), engine(kind, "steps=24")
    job.start(PACELINE_PRACTICE="compute=0.1")
    job.wait_for_checkpoint(run)
    lab.power_off("node1")
    assert job.wait()[0] not in (0, 2), "the engine must learn that it has to start again"
    lab.power_on("node1")
    job.start()
    assert job.wait() == [0, 0], job.said
    begins = [e["step"] for e in read_events(run.rank_events(0)) if e["kind"] == "begin"]
    assert begins[-1] > 0, "it went on"
    assert weights(run.path) == undisturbed(2, 24)


def test_a_host_that_is_taken_away_saves_ends_and_the_run_goes_on_exactly(
    engine: Callable[..., Engine], tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    """The notice comes to the second host alone, and the first must tell the engine."""
    run, job = RunDirectory(tmp_path / "run"), engine("dstack", "steps=24")
    job.start(PACELINE_PRACTICE="compute=0.1")
    job.wait_for_checkpoint(run)
    terminate_all_of(job.processes[1])
    codes = job.wait()
    assert codes[0] == 128 + signal.SIGTERM, job.said
    assert "stopped; saved at step" in job.said
    assert "finished" not in job.said
    job.start()
    assert job.wait() == [0, 0], job.said
    assert weights(run.path) == undisturbed(2, 24)


def test_one_process_per_host_becomes_as_many_as_the_job_file_says(
    engine: Callable[..., Engine], tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    job = engine("sky", "steps=12", "--procs", "2")
    job.start()
    assert job.wait() == [0, 0], job.said
    assert "2 of 4 processes" in job.said
    assert weights(tmp_path / "run") == undisturbed(4, 12)


SCRIPT = """
import sys, time
from pathlib import Path
import torch
import torch.distributed as dist

saved = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, began = dist.get_rank(), int(saved.read_text()) if saved.exists() else 0
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(began, 40):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if rank == 0:
        saved.with_suffix(".part").write_text(str(step + 1))
        saved.with_suffix(".part").rename(saved)
    time.sleep(0.1)
print(f"rank {rank} of {dist.get_world_size()}: from {began} to {step + 1}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["dstack", "vertex"])
def test_a_script_of_the_users_is_one_world_on_both_hosts_and_goes_on_after_one_is_lost(
    kind: str,
    lab: PracticeLab,
    tmp_path: Path,
    command: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(folder)  # the engine sends this directory along, or the image has it
    saved = tmp_path / "saved"
    options = ("--hosts", "2", *MACHINES[kind], "--run", str(tmp_path / "run"))
    written = command("launch", kind, *options, "--", "train.py", str(saved))
    assert written.returncode == 0, written.stderr
    place = tmp_path if kind == "dstack" else folder  # its line begins with `cd project`
    job = Engine(lab, kind, command_in(kind, written.stdout), tmp_path / "log", place)
    try:
        # Gloo asks for the interface of a host's own name, which the lab's hosts do not resolve.
        job.start(GLOO_SOCKET_IFNAME="eth0")
        job.wait_until(lambda: saved.exists() and int(saved.read_text()) > 3)
        lab.power_off("node1")
        job.end()  # as the engines do: a job that has lost a host is ended on all, and begun again
        lab.power_on("node1")
        job.start(GLOO_SOCKET_IFNAME="eth0")
        assert job.wait() == [0, 0], job.said
    finally:
        job.end()
    for rank in (0, 1):
        assert f"rank {rank} of 2: from " in job.said and "from 0 to 40" not in job.said
    assert RunDirectory(tmp_path / "run").path.is_dir()
    assert RunDirectory(tmp_path / "run-host1").path.is_dir()


def terminate_all_of(entered: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the command line inside of the host, as a container runtime sends it."""
    inside = psutil.Process(entered.pid).children(recursive=True)
    lines = [p for p in inside if "paceline" in " ".join(p.cmdline()) and "train" in p.cmdline()]
    for process in lines:
        if "paceline.train.worker" not in process.cmdline():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
