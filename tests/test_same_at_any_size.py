"""The number of processes changes how long a run takes, and nothing else."""

from pathlib import Path

import pytest
import torch

from paceline import recipe as recipes
from paceline.tasks.cifar10.settings import Cifar10Recipe
from paceline.tasks.cifar10.task import Cifar10
from paceline.train.step import plan_step
from paceline.world import World
from tests.conftest import CommandLine

CPU = torch.device("cpu")


# A fixed rate, because most policies depend on the number of steps. At several times this one any
# two orders of summation part ways: training is chaotic then.
SETTINGS = ["schedule.policy=fixed", "schedule.rate=0.05", "evaluate.batch=37"]


@pytest.fixture(scope="module")
def paceline(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> CommandLine:
    """One place for all runs; runs/2 has two processes and 50 steps."""
    paceline = CommandLine(tmp_path_factory.mktemp("sizes"), pictures)
    train_whole(paceline, 2)
    return paceline


def train_whole(paceline: CommandLine, procs: int) -> None:
    settings = [*SETTINGS, "steps=50", "evaluate.every_steps=50"]
    result = paceline.train(f"runs/{procs}", *settings, procs=procs)
    assert result.returncode == 0, result.stderr


def test_one_two_and_four_processes_have_the_same_losses_step_for_step(
    paceline: CommandLine,
) -> None:
    losses, scores = {}, {}
    for procs in (1, 2, 4):
        if procs != 2:
            train_whole(paceline, procs)
        losses[procs] = paceline.losses(f"runs/{procs}")
        scores[procs] = float(paceline.table(f"runs/{procs}")[-1]["validation_loss"])
    assert len(losses[1]) == 50
    for procs in (2, 4):
        assert losses[procs] == pytest.approx(losses[1], rel=1e-5)
        # Evaluation uses the running averages of batch norm, so this holds only if they agree too.
        assert scores[procs] == pytest.approx(scores[1], rel=1e-4)


def open_pictures(pictures: Path, *settings: str) -> Cifar10:
    recipe = recipes.load("cifar10-tiny", [f"data={pictures}", *settings])
    assert isinstance(recipe, Cifar10Recipe)
    return Cifar10(recipe, CPU)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_step_has_the_same_samples_in_a_world_of_any_size(pictures: Path, size: int) -> None:
    workload = open_pictures(pictures, "batch.global=32", "batch.micro=8")
    alone = plan_step(workload, 60, World(0, 1, CPU))
    shares = [plan_step(workload, 60, World(rank, size, CPU)).mine for rank in range(size)]
    assert sorted(index for share in shares for index in share) == list(alone.indices)
    assert min(map(len, shares)) > 0


def test_a_change_of_size_neither_repeats_nor_skips_a_sample_of_the_epoch(pictures: Path) -> None:
    """`per_device` makes the global batch follow the world: 2 processes, then 3, then 1."""
    workload = open_pictures(pictures, "batch.global=null", "batch.per_device=10", "batch.micro=10")
    position, seen = 0, []
    sizes = [2] * 40 + [3] * 30 + [1] * 10
    for size in sizes:
        plan = plan_step(workload, position, World(0, size, CPU))
        assert len(plan.indices) == size
        seen += [int(s) for index in plan.indices for s in workload.samples(index)]
        position = plan.indices.stop
    num_pictures = len(workload.train.labels)
    assert num_pictures == 1800
    assert sorted(seen[:num_pictures]) == list(range(num_pictures))


def test_a_run_resumed_at_another_size_goes_on_where_it_was(paceline: CommandLine) -> None:
    settings = [*SETTINGS, "evaluate.every_steps=null"]
    assert paceline.train("runs/parts", "steps=8", *settings, procs=2).returncode == 0
    more = paceline.train("runs/parts", "steps=20", *settings, procs=4)
    assert more.returncode == 0
    assert "goes on from step 8" in more.stderr
    whole = paceline.losses("runs/2")[:20]
    assert paceline.losses("runs/parts") == pytest.approx(whole, rel=1e-5)


def test_more_processes_than_micro_batches_is_refused(paceline: CommandLine) -> None:
    result = paceline.train("runs/a", "steps=1", "batch.global=16", procs=4)
    assert result.returncode == 2
    assert "2 micro-batches, too few for 4 processes" in result.stderr
    assert "fix:" in result.stderr
