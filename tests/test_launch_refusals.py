"""What is known to be wrong before any process starts is said then."""

import time
from pathlib import Path

import pytest

from paceline import recipe
from paceline.errors import UserError
from paceline.recipe import refuse_too_many_processes
from tests.conftest import CommandLine

TOO_FEW = "a step has 4 micro-batches, too few for 16 processes"


def test_a_world_may_have_as_many_processes_as_a_step_has_micro_batches() -> None:
    loaded = recipe.load("cifar10-tiny", ["batch.global=96", "batch.micro=8"])
    refuse_too_many_processes(loaded, 12)
    with pytest.raises(UserError, match="a step has 12 micro-batches, too few for 16 processes"):
        refuse_too_many_processes(loaded, 16)


def test_one_micro_batch_is_not_called_micro_batches() -> None:
    loaded = recipe.load("cifar10-tiny", ["batch.global=32", "batch.micro=32"])
    with pytest.raises(UserError, match="a step has 1 micro-batch, too few for 2 processes"):
        refuse_too_many_processes(loaded, 2)


def test_a_batch_per_device_grows_with_the_world() -> None:
    settings = ["batch.global=null", "batch.per_device=16", "batch.micro=8"]
    refuse_too_many_processes(recipe.load("cifar10-tiny", settings), 1000)


def test_too_many_processes_here_are_refused_before_one_starts(paceline: CommandLine) -> None:
    result = paceline.train("runs/a", procs=16)
    assert result.returncode == 2
    assert TOO_FEW in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


def test_too_many_processes_of_mpirun_are_refused_before_one_starts(paceline: CommandLine) -> None:
    place = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "16"}
    result = paceline(*paceline.training("runs/a"), **place)
    assert result.returncode == 2
    assert TOO_FEW in result.stderr
    assert not (paceline.cwd / "runs/a").exists()


def test_too_many_processes_on_hosts_are_refused_before_any_login(paceline: CommandLine) -> None:
    """The addresses are of a network that is nobody's, where a login would wait."""
    hosts = paceline.cwd / "hosts.yaml"
    entries = [f"  - {{name: h{n}, address: 192.0.2.{n}, devices: 8}}\n" for n in (1, 2)]
    hosts.write_text("hosts:\n" + "".join(entries), encoding="utf-8")
    began = time.monotonic()
    words = paceline.training("runs/a")[:-2]
    result = paceline(*words, "--hosts", str(hosts))
    assert result.returncode == 2, result.stderr
    assert TOO_FEW in result.stderr
    assert time.monotonic() - began < 10
    assert not Path(paceline.cwd / "runs/a").exists()
