"""Checks of times: phases against torch's profiler, steps against the clock, no needless reads."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from paceline.record.schema import CHECKPOINT, COMPUTE, EVALUATE, NETWORK, OPTIMIZER
from paceline.selftest.bench import Bench, open_attempt, require, train
from paceline.train.attempt import Attempt
from paceline.train.measure.device_clock import DeviceMarks, total_phases
from paceline.train.step import plan_step

_PROFILER_AGREES = 0.05
_STEPS_ADD_UP = 0.05
_RATE = 0.01
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")

PASSES, UPDATE = "selftest passes", "selftest update"
Event = Mapping[str, Any]


class AnnotatedMarks(DeviceMarks):
    """Stamps as usual, and tells torch's profiler about the same two spans of every step."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._open: record_function | None = None

    def mark(self, name: str) -> None:
        if name == "reduced":
            self._turn_to(UPDATE)
        super().mark(name)
        if name == "begin":
            self._turn_to(PASSES)

    def end_step(self) -> None:
        self._turn_to(None)
        super().end_step()

    def _turn_to(self, name: str | None) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = record_function(name) if name else None
        if self._open is not None:
            self._open.__enter__()  # type: ignore[no-untyped-call]


def agrees_with_profiler(bench: Bench, task: str) -> str:
    """What we book to passes and update against what torch's profiler saw there."""
    loaded = bench.recipe(task, "steps=20", "evaluate.every_steps=null", "precision=fp32")
    with open_attempt(loaded, bench.new_run(), bench.device) as attempt:
        attempt.stepper.marks = AnnotatedMarks(bench.device)
        run_steps(attempt, 3)
        booked_before = booked_seconds(attempt)
        trace = bench.folder / "trace.json"
        with profiled(bench.device, trace):
            run_steps(attempt, 10)
        booked = booked_seconds(attempt)
    if bench.device.type == "cpu":
        booked = {name: booked[name] - booked_before[name] for name in booked}
    seen = traced_seconds(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])
    worst = largest_difference(booked, seen)
    require(worst <= _PROFILER_AGREES, f"booked {booked}, the profiler saw {seen} (seconds)")
    return f"within {100 * worst:.1f} % over 10 steps of {1e2 * sum(seen.values()):.1f} ms"


@contextmanager
def profiled(device: torch.device, trace: Path) -> Iterator[None]:
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds, acc_events=True) as profiler:  # without it 2.10 warns
        yield
        wait_for(device)
    profiler.export_chrome_trace(str(trace))


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def booked_seconds(attempt: Attempt) -> dict[str, float]:
    """By the device's stamps since the last time; on a processor by the host's clock, in all."""
    if attempt.world.device.type == "cuda":
        phases = total_phases(attempt.stepper.marks.take_steps().read())
    else:
        phases = attempt.recorder.clock.totals()
    return {
        PASSES: phases.get(COMPUTE, 0.0) + phases.get(NETWORK, 0.0),
        UPDATE: phases.get(OPTIMIZER, 0.0),
    }


def traced_seconds(events: Iterable[Event]) -> dict[str, float]:
    """How long each annotation took where its work was done: on the device, from the first kernel
    that was launched in it to the end of the last, and without a device on the host."""
    listed = [event for event in events if event.get("ph") == "X"]
    kernels = {_correlation(event): event for event in listed if event.get("cat") in _ON_DEVICE}
    launches = [event for event in listed if event.get("cat") in _LAUNCHES]
    seconds = {PASSES: 0.0, UPDATE: 0.0}
    for event in listed:
        if event.get("cat") == "user_annotation" and event["name"] in seconds:
            launched = [
                kernels.get(_correlation(each)) for each in launches if _within(each, event)
            ]
            spans = [kernel for kernel in launched if kernel is not None]
            seconds[event["name"]] += _span(spans or [event])
    return seconds


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")


def _within(inner: Event, outer: Event) -> bool:
    return bool(outer["ts"] <= inner["ts"] < outer["ts"] + outer["dur"])


def _span(events: list[Event]) -> float:
    end = max(event["ts"] + event["dur"] for event in events)
    return float(end - min(event["ts"] for event in events)) / 1e6


def largest_difference(booked: Mapping[str, float], seen: Mapping[str, float]) -> float:
    """As a share of the whole step, so that a span of microseconds does not decide."""
    whole = sum(seen.values())
    require(whole > 0, "the profiler saw none of the annotated spans")
    return max(abs(booked[name] - seen[name]) / whole for name in seen)


def run_steps(attempt: Attempt, count: int) -> None:
    """Steps of an attempt one after the other, without its loop."""
    progress = attempt.state.progress
    for _ in range(count):
        plan = plan_step(attempt.task, progress.position, attempt.world)
        batches = [attempt.task.micro_batch(index) for index in plan.mine]
        attempt.stepper.step(plan, batches, _RATE, want_norm=True)
        progress.step, progress.position = progress.step + 1, plan.indices.stop


def step_reads_nothing(bench: Bench, task: str, precision: str) -> str:
    """torch raises where the host would wait for the device. On a processor it has nothing to
    wait for, and the same lines run."""
    loaded = bench.recipe(task, "evaluate.every_steps=null", f"precision={precision}")
    with open_attempt(loaded, bench.new_run(), bench.device) as attempt:
        run_steps(attempt, 3)  # memory, workspaces and the choice of kernels settle
        plan = plan_step(attempt.task, attempt.state.progress.position, attempt.world)
        batches = [attempt.task.micro_batch(index) for index in plan.mine]
        wait_for(bench.device)
        with refusing_reads(bench.device):
            attempt.stepper.step(plan, batches, _RATE, want_norm=True)
        wait_for(bench.device)
    return f"{len(batches)} micro-batches, update and norm"


@contextmanager
def refusing_reads(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def steps_add_up(bench: Bench, task: str) -> str:
    """The times of the steps against the time that the loop booked to anything but evaluation and
    saving."""
    every = ["log.every_steps=5", "evaluate.every_steps=10", "checkpoint.every_steps=10"]
    events = train(bench.recipe(task, "steps=20", *every), bench.new_run(), bench.device)
    steps, loop = step_and_loop_seconds(events)
    difference = abs(steps - loop) / loop
    require(
        difference <= _STEPS_ADD_UP,
        f"20 steps took {steps:.4f} s by their own times and {loop:.4f} s by the loop's",
    )
    return f"20 steps: {steps:.3f} s, the loop {loop:.3f} s"


def step_and_loop_seconds(events: Iterable[Event]) -> tuple[float, float]:
    """The first interval is left out: what came before its first step is in no step."""
    intervals = [event for event in events if event["kind"] == "steps"][1:]
    beside = (EVALUATE, CHECKPOINT)
    steps = sum(sum(event["step_seconds"]) for event in intervals)
    loop = sum(
        event["seconds"] - sum(event["phases"].get(name, 0.0) for name in beside)
        for event in intervals
    )
    return steps, loop
