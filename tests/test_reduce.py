"""`reduce`: how processes exchange gradients, what it does to the result and to the bytes sent."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline import recipe
from paceline.errors import UserError
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.train.reduce import build_exchange
from paceline.world import World
from tests.conftest import CommandLine
from tests.test_killed_and_resumed import finish, in_a_step, kill_when, outcome

SHORT = [
    "steps=6",
    "evaluate.every_steps=6",
    "schedule.policy=fixed",
    "schedule.rate=0.05",
    "optimizer.average=0.9",
]


@pytest.fixture(scope="module")
def paceline(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> CommandLine:
    """One place for all runs; runs/plain exchanges as every recipe does, runs/bf16 in 16 bits."""
    paceline = CommandLine(tmp_path_factory.mktemp("reduce"), pictures)
    train(paceline, "runs/plain")
    train(paceline, "runs/bf16", "reduce=bf16")
    return paceline


def train(paceline: CommandLine, run: str, *settings: str, procs: int = 2) -> None:
    result = paceline.train(run, *SHORT, *settings, procs=procs)
    assert result.returncode == 0, result.stderr


def bytes_per_step(paceline: CommandLine, run: str) -> float:
    """That the first process gave to the exchange."""
    events = read_events(RunDirectory(paceline.cwd / run).rank_events(0))
    steps = [event for event in events if event["kind"] == "steps"]
    return float(sum(event["reduced_bytes"] for event in steps) / len(steps))


def figures(paceline: CommandLine, run: str, key: str) -> dict[str, Any]:
    """Of one answer of the report."""
    told = json.loads(paceline("report", run, "--json", "-").stdout)
    found: dict[str, Any] = next(a["figures"] for a in told["answers"] if a["key"] == key)
    return found


def test_sixteen_bits_halve_what_is_sent_and_round_the_result(paceline: CommandLine) -> None:
    train(paceline, "runs/fp16", "reduce=fp16")
    whole, losses = bytes_per_step(paceline, "runs/plain"), paceline.losses("runs/plain")
    for kind in ("fp16", "bf16"):
        assert bytes_per_step(paceline, f"runs/{kind}") == whole / 2
        assert paceline.losses(f"runs/{kind}") == pytest.approx(losses, rel=1e-2)
        assert paceline.weights(f"runs/{kind}") != paceline.weights("runs/plain")
    # Two processes on one host: the loopback interface counts what both send.
    told = figures(paceline, "runs/bf16", "traffic")
    assert told["predicted_bytes_per_step"] == pytest.approx(whole)


def test_the_size_of_buckets_changes_nothing_but_when_they_are_sent(paceline: CommandLine) -> None:
    train(paceline, "runs/small", "reduce.bucket_mb=0.05", "reduce.first_bucket_mb=0.01")
    assert paceline.weights("runs/small") == paceline.weights("runs/plain")


OVERLAP = ["reduce=overlap", "reduce.bucket_mb=0.05"]


def test_sending_in_the_order_of_need_changes_no_bit(paceline: CommandLine) -> None:
    train(paceline, "runs/overlap", *OVERLAP)
    assert_same(paceline, "runs/overlap", "runs/plain")


def test_nor_does_it_where_lines_are_rare_and_gradients_are_clipped(paceline: CommandLine) -> None:
    settings = ["optimizer.clip_norm=1.0", "log.every_steps=3"]
    train(paceline, "runs/clipped", *settings)
    train(paceline, "runs/clipped-overlap", *settings, *OVERLAP)
    assert_same(paceline, "runs/clipped-overlap", "runs/clipped")


def assert_same(paceline: CommandLine, one: str, other: str) -> None:
    assert paceline.weights(one) == paceline.weights(other)
    assert paceline.losses(one) == paceline.losses(other)
    assert scores(paceline, one) == scores(paceline, other)
    assert bytes_per_step(paceline, one) == bytes_per_step(paceline, other)


def scores(paceline: CommandLine, run: str) -> list[str]:
    return [row["validation_loss"] for row in paceline.table(run) if row["validation_loss"]]


def test_accumulating_batches_is_a_step_with_a_larger_batch(paceline: CommandLine) -> None:
    train(paceline, "runs/large", "batch.global=64")
    train(paceline, "runs/accumulated", "reduce.accumulate=2")
    assert paceline.weights("runs/accumulated") == paceline.weights("runs/large")
    assert bytes_per_step(paceline, "runs/accumulated") == bytes_per_step(paceline, "runs/large")
    both = paceline("report", "runs/large", "runs/accumulated").stdout
    assert "reduce.accumulate (1 to 2)" in both
    assert re.search(r"global batch +64 +64", both)


def test_a_run_goes_on_with_the_exchange_it_began_with(paceline: CommandLine) -> None:
    paceline.copy(paceline.cwd / "runs/bf16", "runs/more")
    result = paceline.train("runs/more", *SHORT, "steps=8", "reduce=fp16")
    assert result.returncode == 2
    assert "reduce.kind: 'bf16' -> 'fp16'" in result.stderr
    train(paceline, "runs/more", "steps=8", "reduce=bf16")


def test_one_process_exchanges_nothing(paceline: CommandLine) -> None:
    train(paceline, "runs/one", "reduce=bf16", procs=1)
    rounded, whole = paceline.losses("runs/bf16"), paceline.losses("runs/plain")
    assert paceline.losses("runs/one") == pytest.approx(whole, rel=1e-6)
    assert rounded != pytest.approx(whole, rel=1e-6)


EXACT = {
    "diloco": ["reduce=diloco", "reduce.every=10", "reduce.parts=2"],
    "powersgd": ["reduce=powersgd", "reduce.rank=1"],
}
"""Checkpoints are saved every 4 steps: between two exchanges, and while a part is on its way.
`local` is `diloco` with one part, and `topk` keeps the same leftovers as `powersgd`."""


@pytest.mark.parametrize("kind", ["diloco", pytest.param("powersgd", marks=pytest.mark.cluster)])
def test_killed_and_resumed_it_ends_bit_for_bit_the_same(paceline: CommandLine, kind: str) -> None:
    settings = [*EXACT[kind], "optimizer.average=0.9"]
    whole, killed = f"runs/{kind}-whole", f"runs/{kind}-killed"
    finish(paceline, whole, *settings)
    assert kill_when(paceline, killed, in_a_step, random.Random(5), *settings)
    finish(paceline, killed, *settings)
    assert outcome(paceline, killed) == outcome(paceline, whole)


def test_at_another_size_it_goes_on_from_what_all_agreed_on_and_says_so(
    paceline: CommandLine,
) -> None:
    settings = ["reduce=diloco", "reduce.every=4", "reduce.parts=4", "checkpoint.every_steps=3"]
    train(paceline, "runs/sizes", *settings)
    told = paceline.train("runs/sizes", *SHORT, *settings, "steps=9", procs=4)
    assert told.returncode == 0, told.stderr
    assert "goes on from the weights that all had agreed on" in told.stderr
    assert len(paceline.losses("runs/sizes")) == 9


def test_steps_made_alone_send_little_and_say_so(paceline: CommandLine) -> None:
    train(paceline, "runs/local", "steps=16", "reduce=local", "reduce.every=8")
    sent = bytes_per_step(paceline, "runs/local") / bytes_per_step(paceline, "runs/plain")
    assert sent == pytest.approx(2 / 16, rel=0.02)
    plain = paceline.losses("runs/plain")
    assert paceline.losses("runs/local")[: len(plain)] == pytest.approx(plain, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["reduce.every=10", "reduce.parts=3"], "reduce.every, 10, must be a multiple"),
        (["reduce.every=8", "reduce.parts=4", "reduce.delay=3"], "reduce.delay can be 2 at most"),
        (["reduce=bf16", "reduce.every=8"], "set reduce=local or reduce=diloco"),
        (["reduce.hierarchical=true"], "reduce.hierarchical is for plain, fp16 and bf16"),
        (["reduce=dilco"], "reduce.kind"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    paceline: CommandLine, settings: list[str], said: str
) -> None:
    chosen = [] if settings[0].startswith("reduce=") else ["reduce=diloco"]
    result = paceline.train("runs/refused", *SHORT, *chosen, *settings)
    assert result.returncode == 2
    assert said in result.stderr


def test_what_is_written_for_processors_is_refused_on_a_device() -> None:
    world = World(rank=0, size=2, device=torch.device("cuda"))
    chosen = recipe.load("cifar10-tiny", ["reduce=overlap"])
    with pytest.raises(UserError, match="reduce=overlap is written for processors"):
        build_exchange(chosen, torch.nn.Linear(2, 2), world)
