"""Which checks there are, what each needs, and how they are run one after the other."""

import io
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial

import torch

from paceline.errors import UserError
from paceline.machine.arithmetic import best_precision
from paceline.machine.torch_builds import without_kernels
from paceline.selftest import faults, states, timing, training
from paceline.selftest.bench import Bench, CheckError, require
from paceline.task_finder import task_names

OK, FAILED, NOT_RUN = "ok", "failed", "not run"
_ERROR_LINES = 6


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[Bench], str]
    """What was found, in a few words; raises where it is wrong."""
    needs_devices: int = 0
    """So many GPUs; where the bench is a processor, a check that needs none runs there."""
    is_quick: bool = False


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str
    seconds: float
    text: str


def all_checks(bench: Bench) -> Iterator[Check]:
    """The order is that in which a new machine fails: kernels, training, times, faults."""
    yield Check("a kernel runs on every device", kernels_run, needs_devices=1, is_quick=True)
    best = best_precision(bench.capability)
    for task in task_names():
        for precision in bench.precisions:
            run = partial(training.trains_and_resumes, task=task, precision=precision)
            name = f"{task} trains, evaluates and resumes in {precision}"
            yield Check(name, run, is_quick=precision == best)
    for task in task_names():
        yield from _checks_of(task, bench)
    yield Check("the command line trains and reports utilisation", training.command_line_reports)
    yield Check("a hang is named", faults.hang_is_named, _two_if_cuda(bench))
    yield Check("the demonstration runs", training.demonstration_runs, needs_devices=1)


def _checks_of(task: str, bench: Bench) -> Iterator[Check]:
    for precision in bench.precisions:
        run = partial(timing.step_reads_nothing, task=task, precision=precision)
        name = f"{task}: a step in {precision} queues without a read"
        yield Check(name, run, needs_devices=1, is_quick=True)
    named = partial(faults.lack_of_memory_is_named, task=task)
    yield Check(f"{task}: lack of memory is named", named, is_quick=True)
    summed = partial(timing.steps_add_up, task=task)
    yield Check(f"{task}: step times add up to the loop's", summed, is_quick=True)
    profiled = partial(timing.agrees_with_profiler, task=task)
    yield Check(f"{task}: phases agree with torch's profiler", profiled)
    for optimizer in ("sgd", "adam"):
        moved = partial(states.state_moves, task=task, optimizer=optimizer)
        yield Check(f"{task}: weights and states of {optimizer} move between devices", moved)
    exact = partial(training.repeats_itself, task=task)
    yield Check(f"{task}: deterministic runs repeat themselves", exact)
    agree = partial(training.worlds_agree, task=task)
    yield Check(f"{task}: two processes give one's losses", agree, _two_if_cuda(bench))


def _two_if_cuda(bench: Bench) -> int:
    return 0 if bench.device.type == "cpu" else 2


def kernels_run(bench: Bench) -> str:
    for number in range(bench.num_devices):
        device = torch.device(bench.device.type, number)
        if device.type == "cuda" and torch.version.hip is None:
            name, built = torch.cuda.get_device_name(device), torch.cuda.get_arch_list()
            lacking = without_kernels(name, torch.cuda.get_device_capability(device), built)
            require(lacking is None, str(lacking))
        require(float(torch.ones(1, device=device) + 1) == 2.0, f"1 + 1 is not 2 on {device}")
    return f"on {bench.num_devices}"


def run_checks(bench: Bench, quick: bool, say: Callable[[str], None]) -> list[Result]:
    chosen = [check for check in all_checks(bench) if check.is_quick or not quick]
    results = []
    for number, check in enumerate(chosen, start=1):
        say(f"{number} of {len(chosen)}: {check.name}")
        results.append(run_check(check, bench))
    return results


def run_check(check: Check, bench: Bench) -> Result:
    """What a check writes to stderr is a run's progress, which nobody asked for."""
    if check.needs_devices > bench.num_devices:
        lacking = "a GPU" if check.needs_devices == 1 else f"{check.needs_devices} GPUs"
        return Result(check.name, NOT_RUN, 0.0, f"needs {lacking}")
    began = time.perf_counter()
    outcome, text = OK, ""
    try:
        with redirect_stderr(io.StringIO()):
            text = check.run(bench)
    except (CheckError, UserError) as error:
        outcome, text = FAILED, str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}".splitlines()[:_ERROR_LINES]
        outcome = FAILED
        text = "\n".join([*said, f"in {place.name}, {place.filename} line {place.lineno}"])
    return Result(check.name, outcome, time.perf_counter() - began, text)
