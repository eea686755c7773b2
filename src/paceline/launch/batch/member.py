"""Training as one process of a world that mpirun, srun or torchrun has started.

Each process of theirs becomes the parent of one worker, because allocator and thread settings must
be there before a process starts. The first one does what a launcher does for a run: the lock, the
recipe, the launcher's events. Where the processes meet is settled through the run directory.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from paceline import config
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.hosts.importing import expand_nodes
from paceline.launch.agent import explain
from paceline.launch.batch.peers import Peers, wait_watching
from paceline.launch.batch.place import Place
from paceline.launch.jobs import note_launch
from paceline.launch.local import Job, only_one, settle_recipe
from paceline.launch.remote.host_facts import interface_of
from paceline.launch.signals import FROM_A_SCHEDULER, caught_by
from paceline.lifetime import process_started
from paceline.machine.tuning import num_cores, speed_environment
from paceline.record.events import read_events
from paceline.record.writer import EventFile, prepare_directory, write_file

Say = Callable[[str], None]

_MEET_SECONDS = 90.0
_MPIRUN_CONTACT = "OMPI_MCA_orte_hnp_uri"
_NOT_BETWEEN_HOSTS = ("lo", "docker", "virbr", "br-", "veth", "cni", "flannel")


@dataclass(frozen=True)
class Meeting:
    """Where the processes of a world find each other."""

    variables: dict[str, str]
    interface: str
    listener: socket.socket | None = None


def train_in_place(job: Job, place: Place, say: Say) -> int:
    """Run this process's part of the world to its end; the exit code of the command."""
    started = process_started()
    prepare_directory(job.run.path)
    if place.rank > 0:
        return _run_worker(job, place, started, 0, say)
    with only_one(job.run):
        settle_recipe(job, say)
        note_launch(job.run, None, [])
        attempt = 1 + sum(e["kind"] == "launch" for e in read_events(job.run.launcher_events))
        events = EventFile(job.run.launcher_events, attempt)
        settings = speed_environment(place.local_size)
        settings.pop("GLOO_SOCKET_IFNAME", None)  # not settled yet
        events.write(
            "launch",
            started=started,
            command=job.command,
            num_procs=place.size,
            num_cores=num_cores(),
            settings=settings,
            launcher=place.source,
        )
        code = _run_worker(job, place, started, attempt, say)
        events.write("exit", code=code)
        events.close()
        shutil.rmtree(_pulses(job, place), ignore_errors=True)
        return code


def _run_worker(job: Job, place: Place, started: float, attempt: int, say: Say) -> int:
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder, _meet(job, place) as meeting:
        own = Path(folder)
        (own / "recipe.yaml").write_text(config.to_yaml(config.dump(job.recipe)), encoding="utf-8")
        worker = subprocess.Popen(
            [sys.executable, "-m", "paceline.train.worker", str(job.run.path)],
            env={
                **os.environ,
                **speed_environment(place.local_size, meeting.interface),
                **meeting.variables,
                **_identity(place, own, started, attempt),
            },
            pass_fds=[meeting.listener.fileno()] if meeting.listener else [],
            start_new_session=True,
        )
        host = socket.gethostname()
        peers = Peers(_pulses(job, place), own, host)
        stopped: list[int] = []
        with _passing_on(worker, stopped):
            code = wait_watching(worker, peers, place.rank, job.recipe.guard.hang_seconds, say)
        return _conclude(code, stopped, place, own / "error.json", say)


def _identity(place: Place, folder: Path, started: float, attempt: int) -> dict[str, str]:
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "PACELINE_LAUNCHED_AT": repr(started),
        "PACELINE_ATTEMPT": str(attempt),
        "PACELINE_RECIPE": str(folder / "recipe.yaml"),
        "PACELINE_PULSE": str(folder),
        "TORCHELASTIC_ERROR_FILE": str(folder / "error.json"),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


@contextmanager
def _passing_on(worker: subprocess.Popen[bytes], stopped: list[int]) -> Iterator[None]:
    """Whoever ends us wants the worker to save; the schedulers send SIGTERM to every process."""

    def pass_on(number: int, _frame: Any) -> None:
        stopped.append(number)
        worker.terminate()

    with caught_by(pass_on, FROM_A_SCHEDULER):
        yield


def _conclude(code: int, stopped: list[int], place: Place, error_file: Path, say: Say) -> int:
    if code == 0:
        # mpirun and srun end the whole job at the first code that is not 0, and the first process
        # may still be saving; so only that one tells.
        return 128 + stopped[0] if stopped and place.rank == 0 else 0
    try:
        recorded = json.loads(error_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recorded = {}
    failure = SimpleNamespace(
        exitcode=code, pid=0, error_file_data=recorded, message="it left no message"
    )
    text = explain(place.rank, failure).replace(" (pid 0)", f" on {socket.gethostname()}")
    if code != EXIT_USER_ERROR or place.rank == 0:
        say(text)
    else:
        say(f"process {place.rank} on {socket.gethostname()}: {text}")
    return code if code > 0 else 1


def _pulses(job: Job, place: Place) -> Path:
    return job.run.path / f".pulse-{_file_name(place)}"


def _file_name(place: Place) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in place.job) or "job"


@contextmanager
def _meet(job: Job, place: Place) -> Iterator[Meeting]:
    if place.size == 1:
        yield Meeting({}, "lo")
    elif place.source == "torchrun":
        yield Meeting({}, _way_to(os.environ["MASTER_ADDR"], place))
    elif place.has_master:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        yield _meeting_at(address, port, place)
    else:
        with _meeting_file(job, place) as (address, port, listener):
            yield _settled(address, port, place, listener)


def _meeting_at(address: str, port: int, place: Place) -> Meeting:
    """The first process listens there, on that address alone where it is its own."""
    listener = None
    if place.rank == 0:
        try:
            listener = _listen(address, port)
        except OSError as error:
            raise UserError(
                f"process 0 cannot listen on MASTER_ADDR={address} port {port}: {error.strerror}",
                "MASTER_ADDR must be an address of process 0's host, and MASTER_PORT free",
            ) from error
    return _settled(address, port, place, listener)


def _settled(address: str, port: int, place: Place, listener: socket.socket | None) -> Meeting:
    variables = {"PACELINE_STORE": f"tcp://{address}:{port}"}
    if listener is not None:
        variables["PACELINE_STORE_LISTENER"] = str(listener.fileno())
    return Meeting(variables, _way_to(address, place), listener)


@contextmanager
def _meeting_file(job: Job, place: Place) -> Iterator[tuple[str, int, socket.socket | None]]:
    path = job.run.path / f".meet-{_file_name(place)}"
    if place.rank > 0:
        address, port = _wait_for(path, place)
        yield address, port, None
        return
    address = own_address(place)
    listener = _listen(address, 0)
    port = listener.getsockname()[1]
    write_file(path, json.dumps({"address": address, "port": port, "time": time.time()}))
    try:
        yield address, port, listener
    finally:
        path.unlink(missing_ok=True)


def _listen(address: str, port: int) -> socket.socket:
    info = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(info[0])
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(info[4])
    listener.listen(1024)
    return listener


def _wait_for(path: Path, place: Place) -> tuple[str, int]:
    until, began = time.monotonic() + _MEET_SECONDS, process_started()
    while time.monotonic() < until:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["time"] > began - _MEET_SECONDS:  # not one that a killed job left behind
                return str(told["address"]), int(told["port"])
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.1)
    raise UserError(
        f"process {place.rank} on {socket.gethostname()} waited {_MEET_SECONDS:.0f} s for {path}, "
        "where process 0 writes where to meet",
        "put --run on storage that all hosts share, or say where to meet: set MASTER_ADDR (an "
        "address of process 0's host) and MASTER_PORT for all processes (mpirun -x)",
    )


def own_address(place: Place) -> str:
    """The address of this host by which the other hosts of the job reach it."""
    if place.is_one_host:
        return "127.0.0.1"
    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    if chosen:
        return address_of_interface(chosen)
    for peer in _peers(place):
        source = source_towards(peer)
        if source is not None and _leads_out(interface_of(source) or "lo"):
            return source
    return _first_address()


def _leads_out(interface: str) -> bool:
    return not interface.startswith(_NOT_BETWEEN_HOSTS)


def _peers(place: Place) -> list[str]:
    """Other hosts of the job, as far as the launcher tells."""
    if place.source == "srun":
        nodes = os.environ.get("SLURM_STEP_NODELIST", os.environ.get("SLURM_JOB_NODELIST", ""))
        return [node for node in expand_nodes(nodes) if node != os.environ.get("SLURMD_NODENAME")]
    # Open MPI names the addresses of mpirun's own host: '1234.0;tcp://10.0.0.1,10.0.1.1:4567'
    contact = os.environ.get(_MPIRUN_CONTACT, "").partition("tcp://")[2].partition(";")[0]
    return [address for address in contact.rpartition(":")[0].split(",") if address]


def source_towards(peer: str) -> str | None:
    """Which of our addresses a packet to the peer would carry; nothing is sent."""
    try:
        info = socket.getaddrinfo(peer, 9, socket.AF_INET, socket.SOCK_DGRAM)[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])
            return str(probe.getsockname()[0])
    except OSError:
        return None


def address_of_interface(name: str) -> str:
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise UserError(
        f"GLOO_SOCKET_IFNAME={name}, but {socket.gethostname()} has no such interface with an "
        "IPv4 address",
        "`ip addr` lists what there is",
    )


def _first_address() -> str:
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and _leads_out(name):
                return str(entry.address)
    raise UserError(
        f"{socket.gethostname()} has no network address for other hosts", "see `ip addr`"
    )


def _way_to(address: str, place: Place) -> str:
    """The interface that leads to where the processes meet."""
    if place.is_one_host:
        return "lo"
    source = source_towards(address)
    return (interface_of(source) if source else None) or "lo"
