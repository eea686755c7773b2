"""`reduce`: how processes exchange gradients, what it does to the result and to the bytes sent."""

import json
import random
import re
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

SHORT = ["steps=6", "evaluate.every_steps=null", "schedule.policy=fixed", "schedule.rate=0.05"]


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
    train(paceline, "runs/plain")
    whole, losses = bytes_per_step(paceline, "runs/plain"), paceline.losses("runs/plain")
    for kind in ("fp16", "bf16"):
        train(paceline, f"runs/{kind}", f"reduce={kind}")
        assert bytes_per_step(paceline, f"runs/{kind}") == whole / 2
        assert paceline.losses(f"runs/{kind}") == pytest.approx(losses, rel=1e-2)
        assert paceline.weights(f"runs/{kind}") != paceline.weights("runs/plain")
    # Two processes on one host: the loopback interface counts what both send.
    told = figures(paceline, "runs/bf16", "traffic")
    assert told["predicted_bytes_per_step"] == pytest.approx(whole)


def test_the_size_of_buckets_changes_nothing_but_when_they_are_sent(paceline: CommandLine) -> None:
    train(paceline, "runs/plain")
    train(paceline, "runs/small", "reduce.bucket_mb=0.05", "reduce.first_bucket_mb=0.01")
    assert paceline.weights("runs/small") == paceline.weights("runs/plain")


@pytest.mark.parametrize("more", [["optimizer.average=0.9"], ["optimizer.clip_norm=1.0"]])
def test_sending_in_the_order_of_need_changes_no_bit(
    paceline: CommandLine, more: list[str]
) -> None:
    settings = [
        *more,
        "reduce.bucket_mb=0.05",
        "log.every_steps=3",
        "evaluate.every_steps=6",
    ]
    train(paceline, "runs/plain", *settings)
    train(paceline, "runs/overlap", *settings, "reduce=overlap")
    assert paceline.weights("runs/overlap") == paceline.weights("runs/plain")
    assert paceline.losses("runs/overlap") == paceline.losses("runs/plain")
    assert scores(paceline, "runs/overlap") == scores(paceline, "runs/plain")
    assert bytes_per_step(paceline, "runs/overlap") == bytes_per_step(paceline, "runs/plain")


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
    train(paceline, "runs/a", "reduce=bf16", "steps=2")
    result = paceline.train("runs/a", *SHORT, "reduce=fp16")
    assert result.returncode == 2
    assert "reduce.kind: 'bf16' -> 'fp16'" in result.stderr
    train(paceline, "runs/a", "reduce=bf16")


def test_one_process_exchanges_nothing(paceline: CommandLine) -> None:
    train(paceline, "runs/a", "reduce=bf16", procs=1)
    train(paceline, "runs/plain", procs=1)
    assert paceline.weights("runs/a") == paceline.weights("runs/plain")


EXACT = {
    "diloco": ["reduce=diloco", "reduce.every=10", "reduce.parts=2"],
    "powersgd": ["reduce=powersgd", "reduce.rank=1"],
}
"""Checkpoints are saved every 4 steps: between two exchanges, and while a part is on its way.
`local` is `diloco` with one part, and `topk` keeps the same leftovers as `powersgd`."""


@pytest.mark.parametrize("kind", EXACT)
def test_killed_and_resumed_it_ends_bit_for_bit_the_same(paceline: CommandLine, kind: str) -> None:
    settings = [*EXACT[kind], "optimizer.average=0.9"]
    finish(paceline, "runs/whole", *settings)
    assert kill_when(paceline, "runs/killed", in_a_step, random.Random(5), *settings)
    finish(paceline, "runs/killed", *settings)
    assert outcome(paceline, "runs/killed") == outcome(paceline, "runs/whole")


def test_at_another_size_it_goes_on_from_what_all_agreed_on_and_says_so(
    paceline: CommandLine,
) -> None:
    settings = ["reduce=diloco", "reduce.every=4", "checkpoint.every_steps=3"]
    train(paceline, "runs/a", *settings)
    told = paceline.train("runs/a", *SHORT, *settings, "steps=9", procs=4)
    assert told.returncode == 0, told.stderr
    assert "goes on from the weights that all had agreed on" in told.stderr
    assert len(paceline.losses("runs/a")) == 9
    alone = paceline.train("runs/a", *SHORT, *settings, "steps=12", procs=1)
    assert alone.returncode == 0, alone.stderr


def test_steps_made_alone_send_little_and_say_so(paceline: CommandLine) -> None:
    train(paceline, "runs/plain", "steps=16")
    train(paceline, "runs/local", "steps=16", "reduce=local", "reduce.every=8")
    sent = bytes_per_step(paceline, "runs/local") / bytes_per_step(paceline, "runs/plain")
    assert sent == pytest.approx(2 / 16, rel=0.02)
    assert paceline.losses("runs/local") == pytest.approx(paceline.losses("runs/plain"), rel=0.2)


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
    result = paceline.train("runs/a", *SHORT, *chosen, *settings)
    assert result.returncode == 2
    assert said in result.stderr


def test_what_is_written_for_processors_is_refused_on_a_device() -> None:
    world = World(rank=0, size=2, device=torch.device("cuda"))
    chosen = recipe.load("cifar10-tiny", ["reduce=overlap"])
    with pytest.raises(UserError, match="reduce=overlap is written for processors"):
        build_exchange(chosen, torch.nn.Linear(2, 2), world)
