"""What a device needs for a recipe: the estimate against what torch keeps, and what is said of it.

Stated error: what a forward pass keeps is estimated to 10 % for every shipped task."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from paceline import recipe
from paceline.doctor.devices import judge_memory
from paceline.kernels.operation import turned_off
from paceline.machine.arithmetic import Arithmetic
from paceline.settings import Recipe
from paceline.task_finder import find_task, task_names
from paceline.tasks import memory
from paceline.tasks.memory import (
    Memory,
    Saved,
    estimate_memory,
    saved_by,
)
from paceline.tasks.network import build_network
from paceline.tasks.passes import heaviest_micro_batch
from paceline.tasks.samples import SampleTask
from paceline.train.precision import multiplying_in
from tests.conftest import CommandLine
from tests.test_selftest import stand_ins

CPU = torch.device("cpu")
__all__ = ["stand_ins"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def kept_on_the_processor(loaded: Recipe, precision: str = "fp32") -> Saved:
    """What torch really keeps of the run's last micro-batch, without kernels of ours."""
    task = find_task(loaded.workload).open(loaded, CPU)
    assert isinstance(task, SampleTask)
    batch = task.micro_batch(heaviest_micro_batch(task))
    with turned_off(), multiplying_in(Arithmetic(precision), CPU):
        network = build_network(task)
        return saved_by(lambda: task.loss(network, batch), network)


@pytest.fixture(scope="module")
def tiny(stand_ins: dict[str, Path]) -> dict[str, Recipe]:
    return {task: recipe.load(f"{task}-tiny", [f"data={d}"]) for task, d in stand_ins.items()}


@pytest.mark.parametrize("task", task_names())
def test_the_estimate_is_what_torch_keeps_to_ten_percent(
    tiny: dict[str, Recipe], task: str
) -> None:
    estimated = estimate_memory(tiny[task])
    assert estimated is not None
    measured = kept_on_the_processor(tiny[task])
    assert estimated.saved.num_bytes == pytest.approx(measured.num_bytes, rel=0.10)
    weights = 4 * estimated.num_parameters
    states = {"cifar10": 1, "imagenet": 1, "nmt": 2}[task]
    assert estimated.state == weights * (2 + states)


@pytest.mark.parametrize("task", task_names())
def test_two_small_micro_batches_tell_the_whole_one(tiny: dict[str, Recipe], task: str) -> None:
    """The way of tasks that cannot run without values."""
    found, _ = memory._extrapolated(tiny[task])
    measured = kept_on_the_processor(tiny[task])
    assert found.num_bytes == pytest.approx(measured.num_bytes, rel=0.10)


@pytest.mark.parametrize("task", task_names())
def test_in_sixteen_bits_the_estimate_is_right_to_ten_percent(
    tiny: dict[str, Recipe], task: str
) -> None:
    estimated = estimate_memory(tiny[task])
    assert estimated is not None
    copies = 2 * estimated.num_parameters
    reckoned = copies + estimated.share_in_16_bits * estimated.saved.num_bytes
    measured = kept_on_the_processor(tiny[task], "bf16")
    assert reckoned == pytest.approx(measured.num_bytes, rel=0.10)


def test_the_last_pictures_of_a_run_count_where_the_first_are_smaller(
    stand_ins: dict[str, Path],
) -> None:
    small = ["batch.global=16", "batch.micro=8", f"data={stand_ins['cifar10']}"]
    growing = recipe.load("cifar10-fast", small)
    flat = recipe.load("cifar10-fast", [*small, "augment.sizes=[]"])
    grown, full = estimate_memory(growing), estimate_memory(flat)
    assert grown is not None and full is not None
    assert grown.saved.num_bytes == pytest.approx(full.saved.num_bytes, rel=0.02)


# ---- what is said

GIB = 2**30
TAKES_20_GIB = Memory(2 * GIB, Saved(17 * GIB, 0.2 * GIB), 0, micro=256, share_in_16_bits=0.65)
T4 = {"name": "Tesla T4", "capability": [7, 5], "memory_bytes": 15 * GIB}
A100 = {"name": "A100", "capability": [8, 0], "memory_bytes": 40 * GIB}


def on(*devices: dict[str, object]) -> dict[str, dict[str, object]]:
    return {"a": {"torch_import": {"devices": list(devices)}}}


def test_a_recipe_that_does_not_fit_is_told_with_a_micro_batch_that_does() -> None:
    (row,) = judge_memory(on(T4), TAKES_20_GIB, "fp32")
    assert (row.where, row.what, row.state) == ("a", "memory", "fail")
    assert "Tesla T4 (estimated, in fp32, with micro-batches of 256)" in row.found
    assert row.remedy == "batch.micro=128"


def test_devices_are_judged_in_the_precision_that_they_get() -> None:
    """The same recipe takes less in 16 bits; equal devices are one row."""
    small, large = judge_memory(on(T4, A100, A100), TAKES_20_GIB, "auto")
    assert (small.state, large.state) == ("warn", "ok")
    assert "in fp16" in small.found and "in bf16" in large.found


def test_a_state_that_alone_is_too_large_has_no_micro_batch() -> None:
    (row,) = judge_memory(on(T4), Memory(30 * GIB, Saved(1, 1), 0, 8), "fp32")
    assert (row.state, row.remedy) == ("fail", "take a smaller model, or a larger device")


def test_hosts_without_devices_are_not_judged() -> None:
    assert judge_memory({"a": {"torch_import": None}, "b": {}}, TAKES_20_GIB, "auto") == []


def test_recipes_show_tells_the_memory_when_asked(paceline: CommandLine) -> None:
    words = ["recipes", "show", "cifar10-tiny", f"data={paceline.data}"]
    result = paceline.here(*words, "--memory")
    assert result.returncode == 0, result.stderr
    line = result.stdout.splitlines()[-1]
    assert line.startswith("# memory of a device, estimated: 6")
    assert "kept by a forward pass of 32" in line


@pytest.mark.parametrize(
    ("mib", "said"), [(15360, "# it fits the device here"), (500, "# it does not fit the device")]
)
def test_recipes_show_says_whether_it_fits_the_device_here(
    paceline: CommandLine, tmp_path: Path, mib: int, said: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 'Tesla T4, {mib}, 7.5'\n", encoding="ascii")
    program.chmod(0o755)
    words = ["recipes", "show", "cifar10-tiny", f"data={paceline.data}", "--memory"]
    result = paceline.here(*words, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode == 0, result.stderr
    line = result.stdout.splitlines()[-1]
    assert line.startswith(said)
    assert "Tesla T4 (estimated, in fp16, with micro-batches of 32)" in line
