"""Which arithmetic a device is given, what it refuses, and what the record and the report say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from paceline import recipe
from paceline.errors import UserError
from paceline.machine.arithmetic import Arithmetic, Capability, choose_arithmetic, weakest
from paceline.order import WorkerOrder
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.report.answers import answers
from paceline.report.differences import what_differs
from paceline.report.own.run import read_run
from paceline.report.render.text import render
from paceline.task_finder import find_task
from paceline.tasks.cifar10.task import Cifar10
from paceline.train.attempt import Attempt
from paceline.train.measure import flops
from paceline.train.precision import (
    agree_on_arithmetic,
    arithmetic_of_scores,
    multiplying_in,
    number_type,
    scoring_in,
)
from paceline.world import World
from tests.conftest import CommandLine
from tests.stored_runs import StoredRun

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capability", "precision", "tf32"),
    [
        (None, "fp32", False),  # a processor
        ((6, 1), "fp32", False),  # GTX 10
        ((7, 0), "fp16", False),  # V100
        ((7, 5), "fp16", False),  # T4, RTX 20
        ((8, 0), "bf16", True),  # A100
        ((8, 6), "bf16", True),  # A10G, RTX 30
        ((8, 9), "bf16", True),  # L4, RTX 40
        ((9, 0), "bf16", True),  # H100
        ((12, 0), "bf16", True),  # RTX 50
    ],
)
def test_auto_takes_the_fastest_arithmetic_that_a_device_has(
    capability: Capability | None, precision: str, tf32: bool
) -> None:
    chosen = choose_arithmetic("auto", True, capability)
    assert (chosen.precision, chosen.tf32) == (precision, tf32)
    assert chosen.needs_scaler == (precision == "fp16")
    assert not choose_arithmetic("auto", False, capability).tf32


@pytest.mark.parametrize(
    ("asked", "capability", "instead"),
    [
        ("bf16", (7, 0), "fp16"),
        ("bf16", (7, 5), "fp16"),
        ("bf16", (6, 1), "fp32"),
        ("fp16", (5, 2), "fp32"),
        ("fp16", None, "fp32"),
    ],
)
def test_a_precision_that_the_device_lacks_is_refused_with_one_that_it_has(
    asked: str, capability: Capability | None, instead: str
) -> None:
    with pytest.raises(UserError, match=f"precision={asked} needs") as caught:
        choose_arithmetic(asked, True, capability)
    assert caught.value.fix == f"use precision=auto, which is {instead} here"


def test_what_was_asked_for_is_kept_where_the_device_has_it() -> None:
    for capability in ((8, 0), (9, 0)):
        for asked in ("fp32", "bf16", "fp16"):
            assert choose_arithmetic(asked, True, capability).precision == asked
    assert choose_arithmetic("bf16", True, None).precision == "bf16"  # slow, but there


def test_the_weakest_device_of_a_world_decides_for_all() -> None:
    assert weakest([(8, 0), (7, 5), (9, 0)]) == (7, 5)
    assert weakest([(8, 0), None]) is None


def test_every_shipped_recipe_leaves_the_precision_to_the_device() -> None:
    for name in recipe.shipped():
        assert recipe.load(name).precision == "auto"


def test_on_a_processor_nothing_is_switched() -> None:
    before = torch.get_float32_matmul_precision()
    world = World(0, 1, CPU)
    assert agree_on_arithmetic(recipe.load("cifar10-tiny"), world) == Arithmetic("fp32")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("asked", "capability", "scored_in"),
    [("fp16", None, "fp32"), ("bf16", (7, 5), "fp16"), ("fp16", (6, 1), "fp16")],
)
def test_weights_are_scored_where_the_precision_they_were_trained_in_is_lacking(
    asked: str, capability: Capability | None, scored_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = recipe.load("cifar10-tiny", [f"precision={asked}", "tf32=false"])
    monkeypatch.setattr("paceline.train.precision._capability_of", lambda _device: capability)
    device = torch.device("cuda" if capability else "cpu")
    assert arithmetic_of_scores(loaded, World(0, 1, device)).precision == scored_in


def test_evaluation_on_a_processor_is_in_fp32_whatever_training_is() -> None:
    values, bf16 = torch.ones(2, 2), Arithmetic("bf16")
    with multiplying_in(bf16, CPU):
        assert (values @ values).dtype == torch.bfloat16
    with scoring_in(bf16, CPU):
        assert (values @ values).dtype == torch.float32


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In which types matrices are multiplied."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.types.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_peak_is_measured_in_the_arithmetic_of_the_run(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(flops._SIDE, "cpu", 64)
    with Products() as products:
        assert flops.measure_peak(CPU, number_type(Arithmetic(precision)))
    assert products.types == {number_type(Arithmetic(precision))}


def test_a_device_scores_in_the_precision_of_its_training(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that is taken for a device."""
    monkeypatch.setitem(flops._SIDE, "cpu", 64)  # 16 bits are slow on a processor
    monkeypatch.setattr("paceline.train.attempt.agree_on_arithmetic", lambda *_: Arithmetic("bf16"))
    monkeypatch.setattr("paceline.train.duties.scoring_in", multiplying_in)
    types: list[torch.dtype] = []
    really_score = Cifar10._of_both_sides

    def score(task: Cifar10, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        types.append(model(batch).dtype)
        return really_score(task, model, batch)

    monkeypatch.setattr(Cifar10, "_of_both_sides", score)
    settings = [f"data={pictures}", "batch.global=16", "batch.micro=8", "steps=1"]
    loaded = recipe.load(
        "cifar10-tiny", [*settings, "evaluate.every_steps=1", "evaluate.train_samples=0"]
    )
    task = find_task(loaded.workload).open(loaded, CPU)
    attempt = Attempt(loaded, RunDirectory(tmp_path / "run"), task, World(0, 1, CPU))
    assert attempt.live(WorkerOrder(), lambda: False) == "finished"
    assert set(types) == {torch.bfloat16}


def test_what_was_chosen_is_recorded_and_told(finished_run: Path) -> None:
    begins = [
        event
        for event in read_events(RunDirectory(finished_run).rank_events(0))
        if event["kind"] == "begin"
    ]
    environment = json.loads(RunDirectory(finished_run).environment.read_text())
    for told in (begins[0], environment):
        assert (told["precision"], told["tf32"]) == ("fp32", False)
        assert "compute_capability" not in told
    assert "on cpu in fp32" in render(read_run(finished_run))


def test_fp16_on_a_processor_is_refused_before_the_first_step(paceline: CommandLine) -> None:
    result = paceline.train("runs/a", "precision=fp16", "steps=2", procs=1)
    assert result.returncode == 2
    assert "precision=fp16 needs a CUDA device" in result.stderr
    assert "use precision=auto" in result.stderr


def test_a_run_that_was_stored_with_its_precision_goes_on(
    paceline: CommandLine, finished_run: Path
) -> None:
    stored = RunDirectory(paceline.copy(finished_run, "runs/a")).recipe
    before = stored.read_text(encoding="utf-8")
    assert "precision: auto" in before
    stored.write_text(before.replace("precision: auto", "precision: fp32"), encoding="utf-8")
    more = paceline.train("runs/a", "steps=13", procs=1)
    assert more.returncode == 0, more.stderr
    assert "goes on from step 12" in more.stderr
    assert "precision: 'fp32' -> 'auto'" in more.stderr
    warnings = read_run(paceline.cwd / "runs/a").warnings
    assert not [text for text in warnings if "other programs" not in text]


def test_in_fp16_every_line_has_the_loss_scale(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch scales on a processor as on a device; only the choice is played."""
    chosen = Arithmetic("fp16", capability=(7, 5))
    monkeypatch.setitem(flops._SIDE, "cpu", 64)
    monkeypatch.setattr("paceline.train.attempt.agree_on_arithmetic", lambda *_: chosen)
    settings = [f"data={pictures}", "batch.global=16", "batch.micro=8", "steps=2"]
    asked = [*settings, "log.every_steps=1", "evaluate.every_steps=null"]
    loaded = recipe.load("cifar10-tiny", asked)
    run = RunDirectory(tmp_path / "run")
    task = find_task(loaded.workload).open(loaded, CPU)
    attempt = Attempt(loaded, run, task, World(0, 1, CPU))
    assert attempt.live(WorkerOrder(), lambda: False) == "finished"
    events = read_events(run.rank_events(0))
    scales = [event["loss_scale"] for event in events if event["kind"] == "steps"]
    assert len(scales) == 2 and all(scale > 0 for scale in scales)
    assert json.loads(run.environment.read_text())["compute_capability"] == "7.5"


# ---- the report


def cuda_run(path: Path, capability: str | None, **facts: object) -> StoredRun:
    told = {"device": "cuda:0", "peak_flops": 60e12, **facts}
    if capability:
        told["compute_capability"] = capability
    run = StoredRun(path, [{"compute": 0.2}], overrides=["steps=100"], begin_facts=told)
    run.begin()
    return run


@pytest.mark.parametrize("capability", [None, "6.1", "7.0", "7.5", "8.0", "9.0", "nonsense"])
def test_no_remedy_offers_a_precision_by_name(tmp_path: Path, capability: str | None) -> None:
    run = cuda_run(tmp_path / "a", capability, precision="fp32")
    run.train(100)
    offered = " ".join(answer.remedy for answer in answers(read_run(run.path)))
    assert "bf16" not in offered and "fp16" not in offered
    assert ("precision=auto" in offered) == (capability != "6.1")


def test_a_run_in_sixteen_bits_is_not_told_to_use_them(tmp_path: Path) -> None:
    run = cuda_run(tmp_path / "a", "8.0", precision="bf16")
    run.train(100)
    assert not any("precision" in answer.remedy for answer in answers(read_run(run.path)))


def test_runs_with_the_same_setting_and_other_devices_differ_in_precision(tmp_path: Path) -> None:
    one = cuda_run(tmp_path / "one", "7.5", precision="fp16", tf32=False)
    two = cuda_run(tmp_path / "two", "8.6", precision="bf16", tf32=True)
    for run in (one, two):
        run.train(100)
    found = what_differs(read_run(one.path), read_run(two.path))
    assert {"name": "precision", "first": "fp16", "other": "bf16"} in found
    assert {"name": "tf32", "first": "False", "other": "True"} in found


def with_scales(path: Path, scales: list[float]) -> list[str]:
    run = cuda_run(path, "7.0", precision="fp16")
    run.train(10 * len(scales))
    file = run.run.rank_events(0)
    coming = iter(scales)
    lines = []
    for line in file.read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "steps":
            event["loss_scale"] = next(coming)
        lines.append(json.dumps(event))
    file.write_text("\n".join(lines) + "\n")
    return read_run(run.path).warnings


def test_a_loss_scale_that_keeps_falling_is_named(tmp_path: Path) -> None:
    falling = [65536.0] * 12 + [65536.0 / 2**n for n in range(1, 9)]
    (warning,) = with_scales(tmp_path / "a", falling)
    assert "fell from 65536 at step 110 to 256 at step 200" in warning
    assert "precision=fp32" in warning


@pytest.mark.parametrize(
    "scales",
    [
        [65536.0 / 2**n for n in range(8)] + [512.0] * 12,  # settles at the start
        [32768.0, 65536.0, 32768.0, 65536.0] * 5,  # halves and doubles as it is meant to
        [65536.0] * 20,
    ],
)
def test_a_loss_scale_that_settles_is_no_warning(tmp_path: Path, scales: list[float]) -> None:
    assert with_scales(tmp_path / "a", scales) == []


def test_the_report_says_whose_clock_timed_the_steps(tmp_path: Path) -> None:
    for number, (capability, clock) in enumerate([("8.0", "device stamps"), (None, "a clock")]):
        run = cuda_run(tmp_path / str(number), capability)
        run.train(50)
        times = read_run(run.path).step_times
        assert times is not None and clock in times.how


def test_attempts_in_different_precisions_are_told(tmp_path: Path) -> None:
    run = cuda_run(tmp_path / "a", "8.0", precision="bf16")
    run.train(50)
    run.attempt, run.begin_facts = 2, {**run.begin_facts, "precision": "fp16"}
    run.begin(step=50)
    run.train(50)
    assert any("different precisions: bf16, then fp16" in w for w in read_run(run.path).warnings)
