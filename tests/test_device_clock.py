"""Times of a CUDA device, against a stand-in whose answers are known, and what they lead to."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from paceline import recipe
from paceline.machine.probe import used_handles
from paceline.machine.tuning import exact_environment
from paceline.order import WorkerOrder
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.report.answers import answers
from paceline.report.own.run import read_run
from paceline.settings import LogSettings
from paceline.task_finder import find_task
from paceline.tasks.cifar10.task import Cifar10
from paceline.tasks.contract import Task
from paceline.train.attempt import Attempt
from paceline.train.guard import FirstGlimpse
from paceline.train.input import Input, coming_steps
from paceline.train.measure.device_clock import (
    DeviceMarks,
    DeviceStep,
    UnreadNumbers,
    steps_ahead,
    total_phases,
)
from paceline.train.measure.probes import find_place
from paceline.train.measure.recorder import ReadInterval, Recorder, SettledPhases
from paceline.train.precision import scoring_exactly
from paceline.train.state import Progress
from paceline.train.step import Measures, StepResult, plan_step
from paceline.world import World, settle_this_process
from tests.stored_runs import StoredRun
from tests.test_input import SlowReading

CPU, CUDA, META = torch.device("cpu"), torch.device("cuda"), torch.device("meta")


@dataclass
class StandInDevice:
    """Does what was queued in order, beside a host that has a clock of its own."""

    now: float = 0.0
    """Of the host."""
    free_at: float = 0.0
    """When the device has done everything that is queued."""

    def work(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.now) + seconds

    def new_event(self) -> "StandInEvent":
        return StandInEvent(self)

    def marks(self) -> DeviceMarks:
        return DeviceMarks(CPU, self.new_event)


@dataclass
class StandInEvent:
    device: StandInDevice
    passed_at: float = field(default=-1.0)

    def record(self) -> None:
        self.passed_at = max(self.device.free_at, self.device.now)

    def synchronize(self) -> None:
        self.device.now = max(self.device.now, self.passed_at)

    def elapsed_time(self, later: "StandInEvent") -> float:
        return 1e3 * (later.passed_at - self.passed_at)


def queue_step(
    device: StandInDevice, marks: DeviceMarks, compute: float, network: float, update: float = 0.01
) -> None:
    """As the step queues it: two buckets, then the wait for the others, then the update."""
    marks.mark("begin")
    device.work(compute / 2)
    marks.mark("ready")
    device.work(compute / 2)
    marks.mark("ready")
    device.work(network)
    marks.mark("reduced")
    device.work(update)
    marks.end_step()


def test_a_host_that_runs_far_ahead_does_not_blur_the_steps_of_the_device() -> None:
    device = StandInDevice()
    marks = device.marks()
    marks.restart()
    for step in range(10):
        device.now += 0.001  # a millisecond to queue what takes the device a fifth of a second
        queue_step(device, marks, compute=0.9 if step == 6 else 0.15, network=0.04)
    steps = marks.take_steps().read()
    usual, slow = pytest.approx(0.2), pytest.approx(0.95)
    assert [step.seconds for step in steps[1:]] == [slow if n == 6 else usual for n in range(1, 10)]
    assert steps[0].seconds == pytest.approx(0.201)  # the device had to wait for its first work
    assert steps[6].phases == pytest.approx({"compute": 0.9, "network": 0.04, "optimizer": 0.01})
    assert sum(step.seconds for step in steps) == pytest.approx(device.now), "they add up"
    assert total_phases(steps)["compute"] == pytest.approx(9 * 0.15 + 0.9)
    assert marks.take_steps().read() == []


def test_a_device_that_waits_for_its_host_waited_for_input_as_far_as_the_host_did() -> None:
    device = StandInDevice()
    marks = device.marks()
    marks.restart()
    for _ in range(3):
        device.now = max(device.now, device.free_at) + 0.3  # the host reads when the device is idle
        queue_step(device, marks, compute=0.1, network=0.0)
    step = marks.take_steps().read()[-1]
    assert step.seconds == pytest.approx(0.41)
    beside = step.beside({"input": 0.25, "compute": 0.001})
    assert beside["input"] == pytest.approx(0.25)
    assert beside["unexplained"] == pytest.approx(0.05)
    assert sum(beside.values()) == pytest.approx(step.seconds)
    assert step.beside({"input": 9.0})["input"] == pytest.approx(0.3), "not more than it was idle"


def test_what_comes_between_steps_belongs_to_none() -> None:
    device = StandInDevice()
    marks = device.marks()
    marks.restart()
    queue_step(device, marks, compute=0.1, network=0.0)
    device.now = device.free_at + 60.0  # an evaluation
    marks.restart()
    queue_step(device, marks, compute=0.1, network=0.0)
    assert [step.seconds for step in marks.take_steps().read()] == pytest.approx([0.11, 0.11])


@pytest.mark.parametrize(
    ("step_seconds", "num_ahead"), [(0.2, 5), (0.01, 8), (0.6, 2)], ids=["time", "memory", "two"]
)
def test_a_host_is_held_back_when_its_device_is_many_steps_behind(
    step_seconds: float, num_ahead: int
) -> None:
    """About a second of work, as many steps as their batches allow, and two in any case."""
    device = StandInDevice()
    marks = device.marks()
    marks.most_ahead = 8
    marks.keep_pace([DeviceStep(step_seconds, {})])
    for step in range(1, 31):
        marks.limit_lead()
        queue_step(device, marks, compute=step_seconds - 0.01, network=0.0)
        behind = round((device.free_at - device.now) / step_seconds)
        assert behind == min(step, num_ahead + 1), "those, and the one that was just queued"


def test_how_far_a_host_may_run_ahead_depends_on_what_its_batches_take() -> None:
    assert steps_ahead(100_000) == 32
    assert steps_ahead(38_000_000) == 7
    assert steps_ahead(10**9) == 2
    assert steps_ahead(0) == 32


def test_on_a_processor_nothing_is_marked() -> None:
    marks = DeviceMarks(CPU)
    marks.restart()
    marks.mark("begin")
    marks.end_step()
    assert marks.take_steps().read() == []


# ---- the record


def written(folder: Path, device_steps: list[DeviceStep]) -> dict[str, Any]:
    """The event of ten steps that the host queued in no time."""
    run = RunDirectory(folder / "run")
    recorder = Recorder(run, LogSettings(), World(0, 1, CPU), "image", {})
    recorder.begin(0, 0, 0.0, {})
    for step in range(1, 11):
        recorder.add_step(step, 0.1, StepResult(torch.tensor(2.0), None, 32))
    recorder.close_interval(0.1, Measures())
    read = recorder.read_interval(wait=False)
    assert read is not None and read.losses == [2.0] * 10
    recorder.write_steps(10, replace(read, device_steps=device_steps))
    recorder.end(10, "finished")
    (event,) = [e for e in read_events(run.rank_events(0)) if e["kind"] == "steps"]
    return event


def test_step_times_and_the_slowest_step_are_the_devices(tmp_path: Path) -> None:
    usual = DeviceStep(0.2, {"compute": 0.15, "network": 0.04, "optimizer": 0.01})
    slow = DeviceStep(0.95, {"compute": 0.9, "network": 0.04, "optimizer": 0.01})
    event = written(tmp_path, [usual] * 6 + [slow] + [usual] * 3)
    assert event["step_seconds"] == [0.2] * 6 + [0.95] + [0.2] * 3
    assert event["slowest_step"]["step"] == 7
    assert event["slowest_step"]["phases"] == pytest.approx(slow.phases, abs=1e-6)


def test_losses_of_a_device_are_read_when_the_next_interval_is_queued(tmp_path: Path) -> None:
    device = StandInDevice()
    marks = device.marks()
    run = RunDirectory(tmp_path / "run")
    recorder = Recorder(run, LogSettings(every_steps=2), World(0, 1, META), "image", {})
    recorder.begin(0, 0, 0.0, {})
    marks.restart()
    written = []
    for step in range(1, 7):
        queue_step(device, marks, compute=0.15, network=0.04)
        recorder.add_step(step, 0.1, StepResult(torch.tensor(float(step)), None, 32))
        is_last = step == 6
        if recorder.ends_interval(step):
            recorder.close_interval(step / 10, Measures(steps=marks.take_steps()))
            while (read := recorder.read_interval(wait=is_last)) is not None:
                recorder.write_steps(6, read)
                written.append((step, [loss for _, _, loss in read.steps()]))
                done = sum(len(losses) for _, losses in written)
                assert device.now == pytest.approx(0.2 * done), "waited for no more than these"
    recorder.end(6, "finished")
    assert written == [(4, [1.0, 2.0]), (6, [3.0, 4.0]), (6, [5.0, 6.0])]
    events = [e for e in read_events(run.rank_events(0)) if e["kind"] == "steps"]
    assert [event["step"] for event in events] == [2, 4, 6]
    assert [event["epochs"] for event in events] == [0.2, 0.4, 0.6]
    assert [event["step_seconds"] for event in events] == [[0.2, 0.2]] * 3


@dataclass
class StandInTime:
    device: StandInDevice

    def perf_counter(self) -> float:
        return self.device.now

    def time(self) -> float:
        return self.device.now

    def process_time(self) -> float:
        return 0.0


def read_booked(recorder: Recorder, wait: bool) -> ReadInterval | None:
    with recorder.clock.more_of("compute"):
        return recorder.read_interval(wait)


@pytest.mark.parametrize("input_seconds", [0.001, 0.3], ids=["host ahead", "host behind"])
@pytest.mark.parametrize("step_seconds", [0.2, 0.01], ids=["two steps ahead", "many steps ahead"])
def test_every_line_has_the_phases_of_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_seconds: float, input_seconds: float
) -> None:
    """However far the host is ahead, and after evaluations too."""
    device = StandInDevice()
    for module in ("record.phases", "train.measure.recorder"):
        monkeypatch.setattr(f"paceline.{module}.time", StandInTime(device))
    marks = device.marks()
    run = RunDirectory(tmp_path / "run")
    recorder = Recorder(run, LogSettings(every_steps=10), World(0, 1, META), "image", {})
    recorder.begin(0, 0, 0.0, {})
    marks.restart()
    for step in range(1, 61):
        with recorder.clock.phase("input"):
            device.now += input_seconds
        with recorder.clock.phase("compute"):
            marks.limit_lead()
            parts = {"compute": 0.7, "network": 0.2, "update": 0.1}
            queue_step(device, marks, **{n: part * step_seconds for n, part in parts.items()})
        recorder.add_step(step, 0.1, StepResult(torch.tensor(2.0), None, 32))
        is_scored = step % 30 == 0
        if recorder.ends_interval(step):
            recorder.close_interval(0.0, Measures(steps=marks.take_steps()))
            while (read := read_booked(recorder, is_scored)) is not None:
                recorder.write_steps(60, read)
                marks.keep_pace(read.device_steps)
        if is_scored:
            with recorder.clock.phase("evaluate"):
                device.now = max(device.now, device.free_at) + 7.0
            recorder._start_step()
            marks.restart()
    recorder.end(60, "finished")
    events = read_events(run.rank_events(0))
    lines = [event for event in events if event["kind"] == "steps"]
    assert [line["step"] for line in lines] == [10, 20, 30, 40, 50, 60]
    whole = max(step_seconds, input_seconds + 0.001)
    for line in lines:
        loop = line["seconds"] - line["phases"].get("evaluate", 0.0)
        assert loop == pytest.approx(sum(line["step_seconds"]), rel=0.01, abs=2 * input_seconds)
        assert line["phases"]["compute"] == pytest.approx(7 * step_seconds, rel=0.01)
        assert line["phases"]["unexplained"] <= 0.02 * line["seconds"]
    booked = sum(event["seconds"] for event in events if event["kind"] in ("steps", "end"))
    assert booked == pytest.approx(device.now), "phases add up to wall time"
    assert lines[1]["seconds"] >= 9 * whole


def test_without_a_device_the_hosts_clock_is_right(tmp_path: Path) -> None:
    event = written(tmp_path, [])
    assert len(event["step_seconds"]) == 10
    assert max(event["step_seconds"]) < 1
    assert event["slowest_step"]["seconds"] == max(event["step_seconds"])


def test_the_read_that_waits_for_the_device_is_booked_to_a_phase(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a hang there has the patience of a step, not that of what nobody measures."""
    settings = [f"data={pictures}", "batch.global=16", "batch.micro=8", "steps=2"]
    loaded = recipe.load("cifar10-tiny", [*settings, "evaluate.every_steps=null"])
    task = find_task(loaded.workload).open(loaded, CPU)
    attempt = Attempt(loaded, RunDirectory(tmp_path / "run"), task, World(0, 1, CPU))
    phases: list[str] = []

    def read(numbers: UnreadNumbers) -> list[float]:
        phases.append(attempt.recorder.clock.now[0])
        return really_read(numbers)

    really_read = UnreadNumbers.read
    monkeypatch.setattr(UnreadNumbers, "read", read)
    assert attempt.live(WorkerOrder(), lambda: False) == "finished"
    assert phases == ["compute"]


# ---- the loader's judgement


def judged(settled_input_seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Ten intervals of ten steps on a device, a second each; how long of it was input."""
    monkeypatch.setattr("paceline.train.input._CHECK_SECONDS", 0.0)
    monkeypatch.setattr("paceline.train.input.cores_of_process", lambda: 8)
    notes: list[dict[str, Any]] = []
    world, settled = World(0, 1, CUDA), SettledPhases()
    task = cast(Task, SlowReading(asked_workers=0))
    source = Input(task, world, settled, lambda kind, **f: notes.append({"kind": kind, **f}))
    source.start(coming_steps(task, Progress(), 100, world))
    for step in range(1, 101):
        plan = plan_step(task, step - 1, world)
        if step % 10 == 0:
            compute = 1.0 - settled_input_seconds
            settled.add({"input": settled_input_seconds, "compute": compute, "evaluate": 3.0})
        source.after_step(step, plan, is_settled=step % 10 == 0)
    return notes


def test_a_host_that_waits_ahead_of_its_device_is_no_input_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = judged(0.0, monkeypatch)
    assert not [note for note in notes if note["kind"] == "warning"]


def test_a_device_that_waits_for_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = judged(0.5, monkeypatch)
    warnings = [note["text"] for note in notes if note["kind"] == "warning"]
    assert len(warnings) == 1
    # 10 steps of 4 samples a second, half of it waiting: the model could take 80.
    assert "the model could take 80 images/s, the loader gives 40" in warnings[0]
    assert "50 % of the time" in warnings[0]


# ---- the first steps of several hosts


def test_what_hosts_wait_for_each_other_is_told_from_the_devices_stamps() -> None:
    """Not before they were read, whatever the host has queued; and once."""
    settled, told = SettledPhases(), list[tuple[float, float]]()
    glimpse = FirstGlimpse(settled, lambda: settled.num_steps, lambda *step: told.append(step))
    for step in range(1, 41):
        if step % 20 == 0:
            settled.add({"compute": 4.0, "input": 2.0, "network": 10.0, "evaluate": 7.0}, 20)
        glimpse.after_step()
        assert len(told) == (step >= 20)
    ((busy, waited),) = told
    assert (round(busy, 6), round(waited, 6)) == (0.3, 0.5)


# ---- probes, traffic, exactness


@dataclass
class Driver:
    """Devices, as NVIDIA's library tells them: of the first nothing, because it is lost."""

    NVMLError = LookupError
    count: int = 4
    part: str = "MIG-part"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        if uuid != self.part:
            raise self.NVMLError(uuid)
        return SimpleNamespace(number=uuid)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:  # noqa: N802
        if number == 0:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(number=number)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802
        return f"GPU-0000000{handle.number}-aaaa-bbbb-cccc-dddddddddddd"


def test_only_the_devices_that_the_run_uses_are_probed() -> None:
    uuids = [f"0000000{n}-aaaa-bbbb-cccc-dddddddddddd" for n in (1, 3)]
    assert [handle.number for handle in used_handles(Driver(), uuids)] == [1, 3]


def test_of_a_split_card_only_the_part_that_the_run_uses_is_probed() -> None:
    assert [handle.number for handle in used_handles(Driver(), ["part"])] == ["MIG-part"]


def test_devices_that_nobody_knows_are_not_taken_for_those_of_the_run() -> None:
    assert used_handles(Driver(), ["unknown"]) == []
    assert len(used_handles(Driver(count=2), ["unknown"])) == 1


def test_a_run_on_the_processor_uses_no_device() -> None:
    assert find_place(World(0, 1, CPU)).device_uuids == ()


def test_how_busy_devices_were_is_not_told_from_the_cores(tmp_path: Path) -> None:
    """Where NVIDIA's library tells nothing: AMD's devices, or a library that is missing."""
    for device, wanted in (("cuda:0", None), ("cpu", "cores")):
        path = tmp_path / device
        run = StoredRun(path, [{"compute": 0.1}], begin_facts={"device": device})
        run.begin()
        run.probe(seconds=1.0, num_steps=0, sent=0.0)
        run.train(100)
        run.probe(seconds=11.0, num_steps=100, sent=0.0)
        busy = {answer.key: answer for answer in answers(read_run(path))}["busy"]
        assert busy.figures.get("utilisation_of") == wanted
        assert ("cores were" in busy.sentence) == (wanted == "cores")
        assert ("NVML" in busy.missing) == (wanted is None)


def test_devices_of_one_host_exchange_nothing_over_a_network(tmp_path: Path) -> None:
    phases = [{"compute": 0.1, "network": 0.01}] * 2
    run = StoredRun(tmp_path / "a", phases, begin_facts={"device": "cuda:0"})
    run.begin()
    run.probe(seconds=1.0, num_steps=0, sent=0.0)
    run.train(100)
    run.probe(seconds=11.0, num_steps=100, sent=300.0)
    traffic = {answer.key: answer for answer in answers(read_run(run.path))}["traffic"]
    assert traffic.sentence.startswith("Inside one host: not on a network.")
    assert "loopback" not in traffic.sentence and "ring" not in traffic.sentence
    assert "predicted_bytes_per_step" not in traffic.figures


def test_deterministic_asks_cuda_for_operations_that_repeat_themselves() -> None:
    assert exact_environment(False) == {}
    assert exact_environment(True) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    try:
        settle_this_process(deterministic=True)
        assert not torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.deterministic
        assert not torch.are_deterministic_algorithms_enabled(), "a processor needs none of it"
    finally:
        settle_this_process()
    assert torch.backends.cudnn.benchmark


class Unsteady(nn.Module):
    """Puts values to places in no certain order, which torch refuses to make exact."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.zeros(1, dtype=torch.int64)
        out: torch.Tensor = self.network(x)
        torch.zeros(1).put_(places, torch.ones(1))
        return out


@pytest.mark.parametrize("is_steady", [True, False])
def test_what_cannot_be_made_exact_is_named_and_the_rest_is(
    tmp_path: Path, pictures: Path, is_steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, which has such operations as well."""
    if not is_steady:
        build = Cifar10.build_model
        monkeypatch.setattr(Cifar10, "build_model", lambda task: Unsteady(build(task)))
    settings = [f"data={pictures}", "batch.global=16", "batch.micro=8", "steps=1"]
    loaded = recipe.load("cifar10-tiny", [*settings, "deterministic=true"])
    task = find_task(loaded.workload).open(loaded, CPU)
    run = RunDirectory(tmp_path / "run")
    attempt = Attempt(loaded, run, task, World(0, 1, CPU))
    try:
        attempt.be_exact(task.micro_batch(0))
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled() != is_steady
        with scoring_exactly():
            assert torch.is_deterministic_algorithms_warn_only_enabled(), "a score ends no run"
        assert torch.is_deterministic_algorithms_warn_only_enabled() != is_steady
    finally:
        torch.use_deterministic_algorithms(False)
    attempt.recorder.end(0, "stopped")
    warnings = [e["text"] for e in read_events(run.rank_events(0)) if e["kind"] == "warning"]
    assert bool(warnings) != is_steady
    assert not warnings or "put_" in warnings[0]
    assert attempt.state.network.training and not any(
        weight.grad is not None for weight in attempt.state.network.parameters()
    )


def test_an_evaluation_is_as_exact_as_the_run_asked_for(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, symlinks=True)
    recipe_file = RunDirectory(run).recipe
    text = recipe_file.read_text(encoding="utf-8")
    recipe_file.write_text(text.replace("deterministic: false", "deterministic: true"))
    code = (
        "import sys, torch\n"
        "from paceline.train.measure import evaluator\n"
        f"sys.argv = ['', {str(run)!r}, 'newest', 'validation', 'json']\n"
        "evaluator.main()\n"
        "print(torch.backends.cudnn.deterministic)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
