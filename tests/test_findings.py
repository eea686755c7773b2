"""Mistakes of scripts: each is named where it was made, and none where it was not."""

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.report.facts.facts import Facts, Finding, World
from paceline.report.facts.verdict import judge
from paceline.report.facts.world_times import Interval, times_of_intervals
from paceline.report.own.findings import find_mistakes
from paceline.report.own.run import read_run
from tests.conftest import CommandLine

CARELESS = """
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(64)
    data = TensorDataset(torch.randn(400, 16), torch.randint(0, 4, (400,)))
    held = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=10, sampler=sampler, num_workers=1)
    validation = DataLoader(held, batch_size=8)
    net = DDP(nn.Linear(16, 4), find_unused_parameters=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    for epoch in range(3):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            shown = loss.item()
            text = f"{loss:.3f}"
        schedule.step()
        net.eval()
        with torch.no_grad():
            for x, y in validation:
                net(x)
        if dist.get_rank() == 0:
            torch.save({"model": net.module.state_dict()}, "careless.pt")
    dist.destroy_process_group()

main()
"""

CAREFUL = """
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(400, 16), torch.randint(0, 4, (400,)))
    held = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(
        data, batch_size=10, sampler=sampler, num_workers=1, persistent_workers=True
    )
    validation = DataLoader(held, batch_size=8, sampler=DistributedSampler(held, shuffle=False))
    net = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        net.train()
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total = total + loss.detach()
        shown = total.item()
        schedule.step()
        net.eval()
        with torch.no_grad():
            for x, y in validation:
                net(x)
        if dist.get_rank() == 0:
            parts = {"optimizer": optimizer, "scheduler": schedule, "scaler": scaler}
            saved = {name: part.state_dict() for name, part in parts.items()}
            torch.save({"model": net.module.state_dict(), "epoch": epoch, **saved}, "careful.pt")
    dist.destroy_process_group()

main()
"""


LONELY = """
import time, torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(16), number % 4

def main():
    dist.init_process_group("gloo")
    net = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number, (x, y) in enumerate(DataLoader(Slow(), batch_size=10, num_workers=1)):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and number % 5 == 0:
            net.eval()
            time.sleep(0.15)
            net.train()
    dist.destroy_process_group()

main()
"""

TIMED = {"too few loader workers", "the first process does work for which the others wait"}


def findings_of(paceline: CommandLine, name: str, script: str) -> dict[str, Finding]:
    (paceline.cwd / f"{name}.py").write_text(script)
    done = paceline("run", "--procs", "2", "--run", f"runs/{name}", f"{name}.py")
    assert done.returncode == 0, done.stderr
    return {one.what: one for one in read_run(paceline.cwd / "runs" / name).findings}


def line_of(script: str, text: str) -> int:
    return next(n for n, line in enumerate(script.splitlines(), 1) if text in line)


def test_every_mistake_of_a_careless_script_is_named_with_its_line(paceline: CommandLine) -> None:
    found = findings_of(paceline, "careless", CARELESS)
    lines = {
        "the order of samples is the same in every epoch": "sampler = Dist",
        "every one of the 2 processes validates on all of the data": "validation = Data",
        "loader processes are started anew in every epoch": "loader = Data",
        "the learning-rate schedule hardly does anything": "StepLR",
        "DDP looks for unused parameters in every step": "DDP(nn",
        "what is saved lacks the optimizer and the scheduler and the gradient scaler and the "
        "position (epoch or step)": "torch.save",
    }
    for what, text in lines.items():
        assert found[what].place == f"careless.py:{line_of(CARELESS, text)}", what
    reads = [
        one.place
        for one in read_run(paceline.cwd / "runs" / "careless").findings
        if one.what == "a value is read from a tensor in every step"
    ]
    wanted = {f"careless.py:{line_of(CARELESS, text)}" for text in ("loss.item()", "{loss:")}
    assert set(reads) == wanted, "what is printed is read as well"
    assert "64 threads" in found["more threads than cores"].evidence
    report = paceline("report", "runs/careless").stdout
    assert "findings in the script:" in report and "sampler.set_epoch(epoch)" in report


def test_a_careful_script_of_the_same_shape_has_none_of_them(paceline: CommandLine) -> None:
    found = findings_of(paceline, "careful", CAREFUL)
    assert set(found) <= TIMED  # where other programs use the cores, these may be true


@pytest.mark.cluster
def test_a_slow_loader_and_a_first_process_that_works_alone_are_named(
    paceline: CommandLine,
) -> None:
    found = findings_of(paceline, "lonely", LONELY)
    assert set(found) >= TIMED
    assert "1 worker of a process gives" in found["too few loader workers"].evidence
    assert found["too few loader workers"].place == f"lonely.py:{line_of(LONELY, 'num_workers=1')}"


def judged(begin: dict[str, Any], habits: dict[str, Any], **changes: Any) -> list[str]:
    """Of a run on a device, which is not here: what it would have told is played."""
    facts = Facts(run=Path("a"), begin=begin, num_steps=100, **changes)
    events = [{"kind": "begin", **begin}, {"kind": "habits", "habits": habits}]
    return [one.what for one in find_mistakes(facts, {0: events})]


@pytest.mark.parametrize(
    ("begin", "is_found"),
    [
        ({"precision": "fp32", "compute_capability": "7.5"}, True),
        ({"precision": "fp32", "compute_capability": "8.6", "tf32": False}, True),
        ({"precision": "fp32", "compute_capability": "8.6", "tf32": True}, False),
        ({"precision": "fp16", "compute_capability": "7.5"}, False),
        ({"precision": "fp32", "compute_capability": "6.1"}, False),
        ({"precision": "fp32"}, False),
    ],
)
def test_full_precision_is_named_where_there_are_tensor_cores(
    begin: dict[str, Any], is_found: bool
) -> None:
    found = judged({"device": "cuda:0", **begin}, {"num_shapes": 1})
    assert ("full precision on a card with tensor cores" in found) == is_found


def test_unpinned_batches_are_named_on_a_device_only() -> None:
    what = "batches are copied to the device from memory that is not pinned"
    loader = {"workers": 2, "pinned": False}
    assert what in judged({"device": "cuda:0", "loader": loader}, {"num_shapes": 1})
    assert what not in judged({"device": "cpu", "loader": loader}, {"num_shapes": 1})
    pinned = {"workers": 2, "pinned": True}
    assert what not in judged({"device": "cuda:0", "loader": pinned}, {"num_shapes": 1})


def test_changing_shapes_matter_to_a_compiled_model() -> None:
    what = "batches of changing shapes go through a compiled model"
    compiled = {"uses": {"compile": "train.py:3"}}
    assert what in judged({}, {**compiled, "num_shapes": 9})
    assert what not in judged({}, {**compiled, "num_shapes": 2})
    assert what not in judged({}, {"num_shapes": 9})


def seconds_of(**phases: float) -> list[Interval]:
    return [Interval(100, 100, {name: 100 * seconds for name, seconds in phases.items()})]


@pytest.mark.parametrize(("waits", "is_found"), [(0.8, True), (0.1, False)])
def test_workers_are_too_few_only_where_steps_wait_for_them(waits: float, is_found: bool) -> None:
    times = times_of_intervals({0: seconds_of(input=waits, compute=1 - waits)}, {})
    assert times is not None
    found = judged(
        {"loader": {"workers": 1}},
        {"num_shapes": 1},
        world=World(size=1, times=times),
        verdict=judge(times, 100),
        num_units=3200.0,
    )
    assert ("too few loader workers" in found) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(0.3, True), (0.01, False)])
def test_the_first_process_is_named_only_if_it_does_more_than_the_others(
    extra: float, is_found: bool
) -> None:
    first = seconds_of(compute=0.5, checkpoint=extra)
    second = seconds_of(compute=0.5, network=extra)
    times = times_of_intervals({0: first, 1: second}, {})
    assert times is not None
    found = judged(
        {}, {"num_shapes": 1}, world=World(size=2, times=times), verdict=judge(times, 100)
    )
    assert ("the first process does work for which the others wait" in found) == is_found


def test_a_line_that_is_not_as_it_should_be_finds_nothing() -> None:
    broken = {"reads": [{"count": "many"}], "loaders": [{"num_passes": None, "workers": 2}]}
    assert judged({"loader": 3}, {**broken, "num_shapes": "x"}) == []
    json.dumps(broken)
