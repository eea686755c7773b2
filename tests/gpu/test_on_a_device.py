"""Training on a GPU, from the first kernel to a hang. `paceline selftest` runs the same checks."""

import pytest

from paceline.selftest import faults, states, timing, training
from paceline.selftest.bench import Bench
from paceline.selftest.checks import kernels_run
from paceline.task_finder import task_names

# torch has warnings of its own about devices, and about the modes that are tried here.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

PRECISIONS = ("fp32", "fp16", "bf16")
of_every_task = pytest.mark.parametrize("task", task_names())
in_every_precision = pytest.mark.parametrize("precision", PRECISIONS)


def skip_without(bench: Bench, precision: str) -> None:
    if precision not in bench.precisions:
        pytest.skip(f"this device has no fast {precision}")


def test_a_kernel_runs_on_every_device(bench: Bench) -> None:
    kernels_run(bench)


def test_the_demonstration_runs(bench: Bench) -> None:
    training.demonstration_runs(bench)


@of_every_task
@in_every_precision
def test_a_task_trains_evaluates_and_resumes(bench: Bench, task: str, precision: str) -> None:
    skip_without(bench, precision)
    training.trains_and_resumes(bench, task, precision)


@of_every_task
@in_every_precision
def test_a_step_queues_without_a_read(bench: Bench, task: str, precision: str) -> None:
    skip_without(bench, precision)
    timing.step_reads_nothing(bench, task, precision)


@of_every_task
def test_phases_agree_with_the_profiler(bench: Bench, task: str) -> None:
    timing.agrees_with_profiler(bench, task)


@of_every_task
def test_step_times_add_up_to_the_loop(bench: Bench, task: str) -> None:
    timing.steps_add_up(bench, task)


@of_every_task
def test_lack_of_memory_names_rank_phase_and_setting(bench: Bench, task: str) -> None:
    faults.lack_of_memory_is_named(bench, task)


@of_every_task
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_state_moves_to_the_processor_and_back(bench: Bench, task: str, optimizer: str) -> None:
    states.state_moves(bench, task, optimizer)


def test_the_drivers_utilisation_is_in_the_report(bench: Bench) -> None:
    training.command_line_reports(bench)


@of_every_task
def test_two_devices_give_the_losses_of_one(two_devices: Bench, task: str) -> None:
    training.worlds_agree(two_devices, task)


def test_a_hang_of_two_devices_is_named(two_devices: Bench) -> None:
    faults.hang_is_named(two_devices)


@of_every_task
def test_deterministic_training_and_evaluation_repeat_themselves(bench: Bench, task: str) -> None:
    training.repeats_itself(bench, task)
