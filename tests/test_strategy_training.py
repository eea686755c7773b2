"""Training with parameter servers on one machine: real processes, as a user starts them."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from paceline import recipe as recipes
from paceline.errors import UserError
from paceline.launch.tending import Tended
from paceline.launch.workers import StartedWorker
from paceline.record.events import Event, read_events
from paceline.record.schema import UNEXPLAINED, RunDirectory
from paceline.strategies.admission import Identity, refuse_stranger
from paceline.strategies.servers.server import Server
from paceline.strategies.servers.shared_clock import SharedClock
from paceline.strategies.shards import Piece
from tests.conftest import CommandLine, Result, workers_of
from tests.own_tasks import write_project

SERVERS = "strategy=parameter-server"
QUIET = ["evaluate.every_steps=null", "evaluate.train_samples=0", "log.probe_seconds=100"]


def words(paceline: CommandLine, run: str, roles: str, *settings: str) -> list[str]:
    without_procs = paceline.training(run, SERVERS, *settings)[:-2]
    return [*without_procs, "--roles", roles]


def train(paceline: CommandLine, run: str, roles: str, *settings: str) -> Result:
    result = paceline(*words(paceline, run, roles, *settings))
    assert result.returncode == 0, result.stderr
    return result


def events(paceline: CommandLine, run: str, rank: int = 0) -> list[Event]:
    return read_events(RunDirectory(paceline.cwd / run).rank_events(rank))


def lines(paceline: CommandLine, run: str, rank: int = 0) -> list[Event]:
    return [event for event in events(paceline, run, rank) if event["kind"] == "steps"]


def trained_leases(paceline: CommandLine, run: str) -> list[int]:
    """The first micro-batch of what made each update."""
    return [int(first) for line in lines(paceline, run) for first in line["leases"]]


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 100
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


def begins(paceline: CommandLine, run: str, rank: int) -> int:
    return sum(event["kind"] == "begin" for event in events(paceline, run, rank))


def last_step(paceline: CommandLine, run: str, rank: int = 0) -> int:
    return max((int(line["step"]) for line in lines(paceline, run, rank)), default=0)


def test_in_step_it_trains_as_all_reduce_does_batch_norm_included(paceline: CommandLine) -> None:
    settings = ["steps=50", "evaluate.every_steps=50", "evaluate.batch=37", "schedule.rate=0.05"]
    settings.append("optimizer.clip_norm=2.0")
    assert paceline.train("runs/ring", *settings, procs=2).returncode == 0
    train(paceline, "runs/servers", "chief=1,worker=1,server=2", *settings)
    ring, servers = (paceline.losses(f"runs/{name}") for name in ("ring", "servers"))
    assert len(ring) == 50
    assert servers == pytest.approx(ring, rel=1e-5)
    last = [paceline.table(f"runs/{name}")[-1] for name in ("ring", "servers")]
    scores = [float(row["validation_loss"]) for row in last]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)
    for verb in (["evaluate", "runs/servers"], ["checkpoint", "runs/servers"]):
        assert paceline(*verb).returncode == 0
    told = paceline("report", "runs/ring", "runs/servers").stdout
    assert "parameter servers, sync" in told
    changed = paceline(
        *words(paceline, "runs/servers", "chief,worker,server", "strategy.mode=async")
    )
    assert changed.returncode == 2
    assert "strategy.mode: 'sync' -> 'async'" in changed.stderr


def test_a_lost_worker_costs_its_share_and_joins_again_and_every_sample_is_trained_once(
    paceline: CommandLine,
) -> None:
    run, settings = "runs/a", [*QUIET, "strategy.mode=async"]
    roles = "chief=1,worker=2,server=2"
    process = paceline.start(*words(paceline, run, roles, "steps=100000", *settings))
    wait_until(lambda: last_step(paceline, run, 2) >= 10, process)
    workers = workers_of(process.pid)
    workers[2].kill()
    at_loss = last_step(paceline, run)
    wait_until(lambda: begins(paceline, run, 2) == 2, process)
    back = last_step(paceline, run)
    wait_until(lambda: last_step(paceline, run, 2) > back, process)
    assert back > at_loss, "the others have gone on meanwhile"
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert f"worker 1 (rank 2, pid {workers[2].pid}) was killed by SIGKILL; it is started" in said
    assert "the others go on, and its samples are handed out again" in said
    assert not psutil.wait_procs(family, timeout=10)[1], "processes were left behind"
    steps = last_step(paceline, run) + 15
    train(paceline, run, roles, f"steps={steps}", *settings)
    assert sorted(trained_leases(paceline, run)) == list(range(0, 4 * steps, 4))
    report = paceline("report", run).stdout
    assert "workers were lost 1 time" in report
    assert "staleness  updates" in report


def test_phases_of_every_role_of_an_own_task_add_up_to_the_time_that_it_lived(
    paceline: CommandLine,
) -> None:
    recipe = write_project(paceline.cwd)
    settings = ["optimizer={kind: adamw, average: 0.9}", "reduce=fp16", "strategy.mode=async"]
    roles = ["--roles", "chief+server=1,worker=1,server=1"]
    result = paceline("train", recipe.name, SERVERS, *settings, "--run", "runs/a", *roles)
    assert result.returncode == 0, result.stderr
    run = RunDirectory(paceline.cwd / "runs/a")
    (launch,) = [e for e in read_events(run.launcher_events) if e["kind"] == "launch"]
    files = [run.rank_events(0), run.rank_events(1), run.server_events(0), run.server_events(1)]
    for path in files:
        told = read_events(path)
        booked = sum(sum(event.get("phases", {}).values()) for event in told)
        lived = told[-1]["time"] - launch["started"]
        assert booked == pytest.approx(lived, rel=0.02, abs=0.3), path.name
    servers = [read_events(path)[-1] for path in files[2:]]
    assert [event["step"] for event in servers] == [12, 12]
    scored = paceline("evaluate", "runs/a", "--checkpoint", "newest", "--json")
    assert scored.returncode == 0, scored.stderr
    while_training = [e for e in events(paceline, "runs/a") if e["kind"] == "score"][-2]
    assert json.loads(scored.stdout)["scores"] == pytest.approx(while_training["scores"], rel=1e-4)


@pytest.mark.cluster
def test_a_lost_server_ends_the_round_and_what_goes_on_ends_bit_for_bit_the_same(
    paceline: CommandLine,
) -> None:
    roles, settings = "chief=1,worker=1,server=2", [*QUIET, "steps=12", "checkpoint.every_steps=4"]
    train(paceline, "runs/whole", roles, *settings)
    process = paceline.start(*words(paceline, "runs/killed", roles, *settings))
    wait_until(lambda: last_step(paceline, "runs/killed") >= 6, process)
    family = psutil.Process(process.pid).children(recursive=True)
    server = workers_of(process.pid)[3]
    server.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"server 1 (process 3, pid {server.pid}) was killed by SIGKILL" in said
    assert not psutil.wait_procs(family, timeout=10)[1], "processes were left behind"
    train(paceline, "runs/killed", roles, *settings)
    assert paceline.weights("runs/killed") == paceline.weights("runs/whole")


@pytest.mark.cluster
def test_bounded_keeps_its_bound_and_a_backup_worker_spares_the_slowest(
    paceline: CommandLine,
) -> None:
    slow = {"PACELINE_PRACTICE": "compute=0.03,compute@1=0.4"}
    roles = "chief=1,worker=2,server=1"
    bounded = words(
        paceline,
        "runs/b",
        roles,
        *QUIET,
        "steps=12",
        "strategy.mode=bounded",
        "strategy.staleness=3",
    )
    assert paceline(*bounded, **slow).returncode == 0
    ages = [int(age) for line in lines(paceline, "runs/b") for age in line["staleness"]]
    assert len(ages) == 12
    assert max(ages) <= 3
    backup = words(paceline, "runs/k", roles, *QUIET, "steps=12", "strategy.backup=1")
    assert paceline(*backup, **slow).returncode == 0
    dropped = sum(line.get("num_dropped", 0) for line in lines(paceline, "runs/k"))
    assert dropped > 0
    made = [rank for line in lines(paceline, "runs/k") for rank in line["trainers"]]
    assert len(made) == 12 * 2, "two gradients make a step"
    taken = trained_leases(paceline, "runs/k")
    assert len(set(taken)) == len(taken), "a sample was trained twice"
    assert "Lost work: " in paceline("report", "runs/k").stdout


def test_tf_config_starts_the_right_roles(paceline: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    cluster = {
        "master": [f"127.0.0.1:{port}"],
        "worker": ["127.0.0.1:1"],
        "ps": ["127.0.0.1:2"],
    }
    command = paceline.command(*paceline.training("runs/a", *QUIET, "steps=6")[:-2])
    processes = []
    for kind in cluster:
        told = json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})
        processes.append(
            subprocess.Popen(
                command,
                cwd=paceline.cwd,
                env=paceline.environment(TF_CONFIG=told),
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert "TF_CONFIG names parameter servers: strategy=parameter-server" in said[0]
    begin = next(e for e in events(paceline, "runs/a") if e["kind"] == "begin")
    assert begin["all_roles"] == ["chief", "worker", "server"]
    assert begins(paceline, "runs/a", 1) == 1
    assert not list((paceline.cwd / "runs/a").glob(".token*"))


@pytest.mark.cluster
def test_a_worker_that_hangs_is_named_killed_and_started_again(paceline: CommandLine) -> None:
    settings = [*QUIET, "steps=100000", "strategy.mode=async", "guard.hang_seconds=4"]
    process = paceline.start(*words(paceline, "runs/a", "chief,worker=2,server", *settings))
    wait_until(lambda: last_step(paceline, "runs/a", 1) >= 1, process)  # before the next beat
    workers_of(process.pid)[1].suspend()
    wait_until(lambda: begins(paceline, "runs/a", 1) == 2, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "hang: worker 0 (rank 1, pid" in said
    assert "gave no sign of life for" in said


def test_between_two_steps_a_worker_that_has_trained_is_not_taken_for_one_that_starts() -> None:
    worker = Tended(StartedWorker("runs/a"), 1, {})
    starting = {"phase": UNEXPLAINED, "step": 0, "collective": None, "quiet_seconds": 9.0}
    worker.note_beat({**starting, "has_begun": False})
    assert worker.why_stuck(starting, silent_seconds=9.0, hang_seconds=4.0) is None
    worker.note_beat({**starting, "has_begun": True})
    why = worker.why_stuck(starting, silent_seconds=9.0, hang_seconds=4.0)
    assert why == "gave no sign of life for 9 s"


def test_a_worker_with_other_code_or_data_is_refused() -> None:
    chief = Identity("a", "0.1.0", "d" * 16, {"task.py": "1"})
    refuse_stranger(chief, replace(chief, host="b"))
    for other, problem in (
        (replace(chief, host="b", data="e" * 16), "the data on b differs"),
        (replace(chief, host="b", files={"task.py": "2"}), "on b differs .* task.py"),
        (replace(chief, host="b", version="0.2.0"), "the worker on b has Paceline 0.2.0"),
    ):
        with pytest.raises(UserError, match=problem):
            refuse_stranger(chief, other)


def test_a_server_without_memory_for_its_shard_says_what_it_needs() -> None:
    recipe = recipes.load("cifar10-tiny", [SERVERS, "optimizer.kind=adamw"])
    server = Server("server 0 on b", recipe, SharedClock({}), free_bytes=1000)
    shard = (Piece("w", 0, 100, 0),)
    with pytest.raises(UserError, match="server 0 on b has too little memory") as refused:
        server.refuse_without_memory(shard, num_trainers=3)
    assert "server=N" in refused.value.fix
