"""`reduce: auto`: what is chosen from times, and that a run keeps what was chosen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import recipe as recipes
from paceline.record.schema import RunDirectory
from paceline.settings import ReduceSettings
from paceline.train.reduce import choice, outer_plan, usual_inner_rate
from paceline.train.reduce.choice import Found, Measured, choose
from paceline.train.trial import recorded_choice
from tests.conftest import CommandLine
from tests.test_reduce import SHORT

MB = 1e6
AT_1_GBIT = Measured(compute_seconds=0.67, bytes_per_second=117 * MB, gradient_bytes=243 * MB)
AT_100_MBIT = Measured(compute_seconds=0.67, bytes_per_second=11.7 * MB, gradient_bytes=243 * MB)
ALLOWED = ReduceSettings(kind="auto", may_change_result=True)


def test_the_fastest_is_taken_and_of_equals_what_changes_least() -> None:
    times = {"plain": 2.45, "overlap": 2.10, "bf16": 1.57, "powersgd": 0.90, "diloco": 0.70}
    assert choose(choice.ORDER, Found(times)) == "diloco"
    assert choose(("plain", "overlap"), Found(times)) == "overlap"
    assert choose(choice.ORDER, Found({**times, "powersgd": 0.69})) == "diloco"
    assert choose(("plain", "overlap"), Found({"plain": 2.12, "overlap": 2.10})) == "plain"
    assert choose(choice.ORDER, Found()) == "plain"


def test_what_may_change_the_result_is_only_tried_where_that_is_allowed() -> None:
    same = ReduceSettings(kind="auto")
    assert choice.kinds_to_try(same, AT_1_GBIT, on_cuda=False) == ["plain", "overlap"]
    assert "diloco" in choice.kinds_to_try(ALLOWED, AT_1_GBIT, on_cuda=False)
    assert "overlap" not in choice.kinds_to_try(ALLOWED, AT_1_GBIT, on_cuda=True)


def test_hosts_with_several_processes_may_add_up_inside_first() -> None:
    known = Measured(0.67, 117 * MB, 243 * MB, hierarchical_share=0.67)
    kinds = choice.kinds_to_try(ReduceSettings(kind="auto"), known, on_cuda=False)
    assert kinds == ["plain", "overlap", "hierarchical"]
    chosen = choice.settings_of("hierarchical", known, ReduceSettings(kind="auto"))
    assert chosen.kind == "plain" and chosen.hierarchical
    assert choice.least_seconds("hierarchical", known, ALLOWED) == pytest.approx(1.39, abs=0.01)


def test_where_gradients_take_no_time_nothing_is_tried() -> None:
    fast = Measured(compute_seconds=0.67, bytes_per_second=50e9, gradient_bytes=243 * MB)
    assert choice.kinds_to_try(ALLOWED, fast, on_cuda=False) == ["plain"]


def test_a_kind_that_cannot_win_is_not_timed() -> None:
    """At 100 Mbit/s plain needs 20 s for what DiLoCo does in 0.7 s."""
    found = Found({"diloco": 0.70})
    least = choice.least_seconds("plain", AT_100_MBIT, ALLOWED)
    assert least == pytest.approx(20.8, abs=0.1)
    assert not choice.is_worth_timing(least, AT_100_MBIT, found, 5, 100_000)
    least = choice.least_seconds("powersgd", AT_100_MBIT, ALLOWED)
    assert choice.is_worth_timing(least, AT_100_MBIT, found, 5, 100_000)


def test_a_trial_is_a_small_part_of_the_run() -> None:
    least = choice.least_seconds("overlap", AT_1_GBIT, ALLOWED)
    assert choice.is_worth_timing(least, AT_1_GBIT, Found(), 5, 500)
    assert not choice.is_worth_timing(least, AT_1_GBIT, Found(), 5, 499)


def test_diloco_exchanges_as_seldom_as_the_line_needs() -> None:
    assert choice.settings_of("diloco", AT_100_MBIT, ALLOWED).every == 8
    slower = Measured(compute_seconds=0.67, bytes_per_second=1.17 * MB, gradient_bytes=243 * MB)
    chosen = choice.settings_of("diloco", slower, ALLOWED)
    assert chosen.every == 56 and chosen.delay == 7
    many = replace(AT_100_MBIT, num_procs=16)
    assert choice.settings_of("diloco", many, ALLOWED).every == 48, "bits cannot be added up"
    assert choice.least_seconds("diloco", slower, ALLOWED) == 0.67


def test_several_hosts_that_are_slower_than_one_are_said_to_be() -> None:
    told = choice.slower_than_one_host(2, busy_seconds=0.67, waited_seconds=20.0, kind="plain")
    assert told is not None
    assert "2 hosts are slower than one" in told and "about 1.34 s" in told
    assert "reduce=auto" in told
    assert choice.slower_than_one_host(2, 0.67, 0.60, "plain") is None
    assert choice.slower_than_one_host(4, 0.67, 1.90, "plain") is None
    assert choice.slower_than_one_host(1, 0.67, 5.0, "plain") is None


def test_a_short_run_on_a_fast_line_stays_plain_and_says_why(paceline: CommandLine) -> None:
    result = paceline.train("runs/a", *SHORT, "reduce=auto")
    assert result.returncode == 0, result.stderr
    assert "reduce: auto takes plain" in result.stdout + result.stderr
    other = paceline.train("runs/a", *SHORT, "reduce=plain", "steps=8")
    assert other.returncode == 2 and "reduce.kind: 'auto' -> 'plain'" in other.stderr


def test_a_choice_is_found_in_checkpoints_and_before_the_first_one_in_events(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path)
    assert recorded_choice(run) is None
    run.events.mkdir()
    event = {"kind": "reduce", "time": 1.0, "attempt": 1, "step": 0, "chosen": {"kind": "overlap"}}
    run.rank_events(0).write_text(json.dumps(event) + "\n", encoding="utf-8")
    assert recorded_choice(run) == {"kind": "overlap"}
    saved = run.checkpoints / "step-0000010"
    saved.mkdir(parents=True)
    state = {"progress": {"step": 10, "exchange": {"kind": "diloco"}}}
    (saved / "state.json").write_text(json.dumps(state), encoding="utf-8")
    assert recorded_choice(run) == {"kind": "diloco"}
    (run.checkpoints / "step-0000020").mkdir()
    assert recorded_choice(run) == {"kind": "diloco"}


def test_a_run_keeps_what_was_chosen_before_its_first_checkpoint(paceline: CommandLine) -> None:
    """A kind that this machine would never choose, as if it had been the fastest."""
    settings = [*SHORT, "reduce=auto"]
    run = paceline.cwd / "runs" / "a"
    assert paceline.train("runs/a", *settings, "steps=2").returncode == 0
    shutil.rmtree(run / "checkpoints")
    events = run / "events" / "rank-00000.jsonl"
    text = events.read_text(encoding="utf-8").replace('"kind": "plain"', '"kind": "topk"')
    events.write_text(text, encoding="utf-8")
    result = paceline.train("runs/a", *settings, "steps=4")
    assert result.returncode == 0, result.stderr
    assert '"reduce": "topk"' in events.read_text(encoding="utf-8")
    assert list(run.glob("checkpoints/*/rank-00001.safetensors"))


def test_what_smaller_batches_cost_adam_is_made_up_for_in_its_own_steps() -> None:
    assert usual_inner_rate("sgd", 4) == 1.0
    assert [usual_inner_rate("adamw", num) for num in (1, 2, 8)] == [1.0, 2**0.5, 2**0.5]
    for kind in ("local", "diloco"):
        plan = outer_plan(recipes.load("nmt-tiny", [f"reduce={kind}"]), 2)
        assert (plan.inner_rate, plan.rate) == (2**0.5, 1.0)
    asked = ["reduce=diloco", "reduce.inner_rate=1", "reduce.outer_rate=0.7"]
    plan = outer_plan(recipes.load("nmt-tiny", asked), 2)
    assert (plan.inner_rate, plan.rate) == (1.0, 0.7)
