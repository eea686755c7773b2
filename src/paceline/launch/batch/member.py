"""Training as one process of a world that mpirun, srun, torchrun or an engine has started.

Each process of theirs becomes the parent of one worker, because allocator and thread settings must
be there before a process starts. The first one does what a launcher does for a run: the lock, the
recipe, the launcher's events. Where the processes meet is settled in `meeting`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paceline import config
from paceline.errors import EXIT_USER_ERROR, Say
from paceline.launch.agent import explain
from paceline.launch.batch.meeting import Meeting, meet
from paceline.launch.batch.peers import Peers, wait_watching
from paceline.launch.batch.place import Place
from paceline.launch.claim import Job, claim_run, next_attempt, note_launch
from paceline.launch.ending import ending_in_words, was_stopped
from paceline.launch.going_on import newest_step
from paceline.launch.remote.host_facts import read_pulses
from paceline.launch.scratch import scratch_directory
from paceline.launch.tending import in_roles, new_token
from paceline.lifetime import process_started
from paceline.machine.cores import num_cores
from paceline.machine.mounts import is_object_store
from paceline.machine.signals import FROM_A_SCHEDULER, caught_by, unmoved_by_closed_terminal
from paceline.machine.tuning import exact_environment, speed_environment
from paceline.order import WorkerOrder
from paceline.recipe import refuse_too_many_processes
from paceline.record.writer import EventFile, prepare_directory, write_private


def train_in_place(job: Job, place: Place, say: Say) -> int:
    """Run this process's part of the world to its end; the exit code of the command."""
    order = WorkerOrder(launched_at=process_started())
    if job.roles is None:
        refuse_too_many_processes(job.recipe, place.size)
    else:
        order = in_roles(order, job.roles, job.recipe, token=None)
        order = replace(order, token_file=str(_token_file(job, place)))
    if place.rank > 0:
        prepare_directory(job.run.path)
        return _run_worker(job, place, order, say)
    with claim_run(job, say), unmoved_by_closed_terminal():
        note_launch(job.run, None, [])
        attempt = next_attempt(job.run)
        events = EventFile(job.run.launcher_events, attempt)
        shutil.rmtree(_pulses(job, place), ignore_errors=True)  # of a start that was killed
        exact = exact_environment(job.recipe.deterministic)
        settings = speed_environment(place.local_size) | exact
        settings.pop("GLOO_SOCKET_IFNAME", None)  # not settled yet
        events.write(
            "launch",
            started=order.launched_at,
            command=job.command,
            num_procs=place.size,
            num_cores=num_cores(),
            settings=settings,
            launcher=place.source,
            **({"roles": list(job.roles.by_rank)} if job.roles else {}),
        )
        if job.roles is not None:  # before anybody can reach the store
            write_private(_token_file(job, place), new_token())
        code = _run_worker(job, place, replace(order, attempt=attempt), say)
        _say_end(job, code, order.launched_at or time.time(), say)
        events.write("exit", code=code)
        events.close()
        shutil.rmtree(_pulses(job, place), ignore_errors=True)
        _token_file(job, place).unlink(missing_ok=True)
        return code


def _say_end(job: Job, code: int, started: float, say: Say) -> None:
    """A process that another one asked to stop has ended well, but has not finished."""
    if code in (0, 128 + signal.SIGTERM) and was_stopped(job.run):
        say(f"stopped; saved at step {newest_step(job.run):,}. The same command goes on from there")
    elif code == 0:
        say(ending_in_words(job.run, started))


def _run_worker(job: Job, place: Place, order: WorkerOrder, say: Say) -> int:
    has_roles = job.roles is not None
    with scratch_directory(job.run.path) as own, meet(job.run, place, has_roles) as meeting:
        (own / "recipe.yaml").write_text(config.to_yaml(config.dump(job.recipe)), encoding="utf-8")
        worker = subprocess.Popen(
            [sys.executable, "-m", "paceline.train.worker", str(job.run.path)],
            env={
                **os.environ,
                **speed_environment(place.local_size, meeting.interface),
                **exact_environment(job.recipe.deterministic),
                **_variables(place, own),
                **_complete(order, meeting, own).to_environment(),
            },
            pass_fds=[meeting.listener.fileno()] if meeting.listener else [],
            start_new_session=True,
        )
        host = socket.gethostname()
        peers = Peers(_pulses_of(job, place, own), own, host, job.run.path)
        stopped: list[int] = []
        with _passing_on(worker, stopped):
            code = wait_watching(
                worker, peers, place.rank, order.replaceable, job.recipe.guard, say
            )
        if code == 0 and place.restarts_all and _was_stopped(own) and not peers.stop_was_wanted:
            stopped.append(signal.SIGTERM)  # another host was told to end, and this one followed
        return _conclude(code, stopped, place, own / "error.json", say)


def _was_stopped(own: Path) -> bool:
    return any(beat.get("ended") == "stopped" for beat, _ in read_pulses(own))


def _complete(order: WorkerOrder, meeting: Meeting, folder: Path) -> WorkerOrder:
    return replace(
        order,
        recipe=str(folder / "recipe.yaml"),
        store=meeting.store,
        store_listener=meeting.listener.fileno() if meeting.listener else None,
        pulse_directory=str(folder),
    )


def _variables(place: Place, folder: Path) -> dict[str, str]:
    """What torchrun tells its workers."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
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


def _pulses_of(job: Job, place: Place, own: Path) -> Path:
    """In a bucket the signs of life of other hosts come late, and would be taken for a hang."""
    return own / "pulses" if is_object_store(job.run.path) else _pulses(job, place)


def _token_file(job: Job, place: Place) -> Path:
    """Only this user can read it; so who can is let in by the other processes."""
    return job.run.path / f".token-{place.file_name}"


def _pulses(job: Job, place: Place) -> Path:
    return job.run.path / f".pulse-{place.file_name}"
