"""Remedies that a report offers: each with its gain, in the run's own terms; and `paceline try`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.launch.trial.remedy import (
    Asked,
    find_offer,
    step_seconds,
    try_remedy,
    whole_periods,
)
from paceline.report.answers import answers
from paceline.report.facts.facts import Facts, Options
from paceline.report.foreign import read_log
from paceline.report.own.run import read_run
from paceline.report.remedies import remedies_of
from paceline.report.remedies.offer import Offer
from paceline.settings import ReduceSettings
from tests import stored_runs
from tests.conftest import CommandLine
from tests.stored_runs import StoredRun
from tests.test_foreign_text import seq2seq_log

SLOW_INPUT = {"input": 0.6, "compute": 0.2, "network": 0.0, "optimizer": 0.01}
SLOW_SAVES = {"input": 0.0, "compute": 0.2, "network": 0.0, "optimizer": 0.01}


def trained(path: Path, phases: list[dict[str, float]], *settings: str, **more: object) -> Facts:
    """200 steps of a recipe that knows loader workers."""
    run = StoredRun(path, phases, recipe="imagenet-tiny", overrides=["steps=200", *settings])
    run.begin_facts = dict(more)
    run.launch()
    run.begin()
    run.train(200)
    run.end()
    run.exit()
    return read_run(path)


def offer_named(facts: Facts, name: str) -> Offer:
    (found,) = [offer for offer in remedies_of(facts) if offer.name == name]
    return found


@pytest.mark.parametrize("scene", ["overfitting", "plateaued", "restarted"])
def test_every_remedy_that_a_report_prints_has_its_gain(tmp_path: Path, scene: str) -> None:
    stored_runs.SCENES[scene](tmp_path / "a")
    facts = read_run(tmp_path / "a")
    offers = remedies_of(facts)
    assert offers and all(offer.gain and offer.gain.middle >= 1.03 for offer in offers)
    (verdict,) = [answer for answer in answers(facts) if answer.key == "verdict"]
    assert verdict.remedy.count(" times as fast, ") == min(len(offers), 3)
    assert f"paceline try {facts.run}" in verdict.remedy
    assert [one["name"] for one in verdict.figures["remedies"]] == [one.name for one in offers]


def test_a_run_that_waits_for_its_loader_is_told_how_many_workers_keep_up(tmp_path: Path) -> None:
    """A step of 0.81 s, of which 0.21 s is work: 3.9 times one worker, and a margin."""
    facts = trained(tmp_path / "a", [SLOW_INPUT], loader_workers=1)
    found = offer_named(facts, "workers")
    assert found.setting == "input.workers=5" and found.setting in found.how
    assert found.gain is not None
    assert found.gain.low < 0.81 / 0.21 < found.gain.high


def test_saves_that_hold_the_loop_up_may_be_rarer(tmp_path: Path) -> None:
    run = StoredRun(
        tmp_path / "a", [SLOW_SAVES], overrides=["steps=200", "checkpoint.every_steps=10"]
    )
    run.launch()
    run.begin()
    for step in range(10, 210, 10):
        run.train(10, checkpoint=1.0)
        run.write(
            run.run.rank_events(0),
            "checkpoint",
            step=step,
            wait_seconds=0.0,
            copy_seconds=1.0,
            write_seconds=0.1,
            until_step=step + 1,
        )
    run.end()
    run.exit()
    found = offer_named(read_run(tmp_path / "a"), "saves")
    assert found.setting == "checkpoint.every_steps=100"
    assert found.gain is not None and 1.3 < found.gain.middle < 1.5


def test_a_straggler_costs_what_the_others_wait_for_it(tmp_path: Path) -> None:
    quick = {"input": 0.0, "compute": 0.2, "network": 0.2, "optimizer": 0.0}
    slow = {"input": 0.0, "compute": 0.39, "network": 0.01, "optimizer": 0.0}
    facts = trained(tmp_path / "a", [quick, quick, slow])
    found = offer_named(facts, "straggler")
    assert found.gain is not None and 1.2 < found.gain.middle < 2.1
    assert "paceline watch" in found.how


def test_two_hosts_that_are_slower_than_one_are_told_so(tmp_path: Path) -> None:
    facts = read_run(stored_runs.plateaued(tmp_path / "a").path)
    found = offer_named(facts, "one-host")
    assert found.gain is not None and found.gain.middle > 1


def test_nobody_wants_faster_what_has_diverged(tmp_path: Path) -> None:
    assert remedies_of(read_run(stored_runs.diverged(tmp_path / "a").path)) == []


def test_a_log_is_told_the_gain_or_what_is_missing_for_it(tmp_path: Path) -> None:
    log = tmp_path / "nohup.out"
    log.write_text(seq2seq_log(20_000, num_hosts=2), encoding="utf-8")
    facts = read_log(log, Options(link_bits_per_second=100e6))
    offers = remedies_of(facts)
    assert {offer.name for offer in offers} >= {"link", "batch"}
    assert all(offer.gain for offer in offers)


def observed(facts: Facts) -> Facts:
    return replace(facts, settings={"script": "train.py"})


def test_a_script_is_told_in_its_own_terms(tmp_path: Path) -> None:
    loader = {"workers": 2, "batch_size": 32, "persistent": False}
    facts = observed(trained(tmp_path / "a", [SLOW_INPUT], loader=loader))
    found = offer_named(facts, "workers")
    assert "num_workers=9" in found.how and not found.setting
    assert found.gain is not None and found.gain.middle > 3


def test_what_is_no_remedy_of_the_report_is_refused_with_those_that_are(tmp_path: Path) -> None:
    facts = trained(tmp_path / "a", [SLOW_INPUT], loader_workers=1)
    assert find_offer(facts, "workers").gain is not None
    assert find_offer(facts, "input.workers=5").name == "workers"
    assert find_offer(facts, "compile=true").gain is None
    with pytest.raises(UserError) as error:
        find_offer(facts, "wrkers")
    assert "workers" in error.value.fix


@pytest.mark.parametrize(
    ("remedy", "steps", "told"),
    [
        ("link", 20, "lab up"),
        ("batch", 5, "10 or more"),
        ("batch", 20, "--hosts hosts.yaml"),
    ],
)
def test_what_cannot_be_tried_is_told_with_how_to_see_it(
    tmp_path: Path, quiet: Callable[[str], None], remedy: str, steps: int, told: str
) -> None:
    run = stored_runs.plateaued(tmp_path / "a").path
    with pytest.raises(UserError) as error:
        try_remedy(Asked(run, remedy, steps, None), quiet)
    assert told in error.value.fix


def test_steps_with_a_rare_exchange_are_tried_in_whole_periods_and_none_is_left_out(
    tmp_path: Path,
) -> None:
    assert [whole_periods(10, every) for every in (1, 8, 32)] == [10, 16, 64]
    quick = {"input": 0.0, "compute": 0.1, "network": 0.0, "optimizer": 0.0}
    run = StoredRun(tmp_path / "a", [quick, quick], overrides=["steps=16"], steps_per_line=1)
    run.launch()
    run.begin()
    for _ in range(2):
        run.train(7)
        run.phases = [{**quick, "network": 0.8}] * 2
        run.train(1)
        run.phases = [quick, quick]
    run.end()
    run.exit()
    facts, offer = read_run(run.path), Offer("local", "", None)
    assert step_seconds(facts, offer, ReduceSettings(kind="local")) == pytest.approx(0.2, rel=0.01)
    assert step_seconds(facts, offer, ReduceSettings()) == pytest.approx(0.1, rel=0.1)


def test_logs_and_scripts_are_not_run(tmp_path: Path, paceline: CommandLine) -> None:
    log = tmp_path / "nohup.out"
    log.write_text(seq2seq_log(20_000, num_hosts=1), encoding="utf-8")
    refused = paceline("try", str(log), "batch")
    assert refused.returncode == 2 and "paceline report" in refused.stderr


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_remedy_is_tried_beside_the_run_and_nothing_is_left(
    finished_run: Path, paceline: CommandLine
) -> None:
    before, beside = files_of(finished_run), sorted(finished_run.parent.iterdir())
    tried = paceline("try", str(finished_run), "batch.global=64", "--steps", "10", "--json")
    assert tried.returncode == 0, tried.stderr
    told = json.loads(tried.stdout)
    assert told["from_step"] == 12 and told["num_steps"] == 10
    assert told["measured"] > 0 and told["seconds_after"] > 0
    assert files_of(finished_run) == before
    assert sorted(finished_run.parent.iterdir()) == beside


@pytest.mark.cluster
def test_a_recipe_is_planned_from_trial_steps_here_and_nothing_is_left(
    paceline: CommandLine, tmp_path: Path
) -> None:
    words = [f"data={paceline.data}", "batch.global=32", "batch.micro=8"]
    question = ["--hosts", "1,2,4", "--network", "1Gbit", "--json"]
    told = paceline("plan", "cifar10-tiny", *words, *question, TMPDIR=str(tmp_path))
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert [size["hosts"] for size in found["sizes"]] == [1, 2, 4]
    assert found["units_per_step"] == 32
    assert any("trial steps" in figure["source"] for figure in found["figures"])
    assert not list(tmp_path.glob("paceline-try-*"))


def test_a_run_tells_when_its_gradients_are_ready(finished_run: Path) -> None:
    """So that one process alone says what an all-reduce could hide."""
    world = read_run(finished_run).world
    sizes, shares = zip(*world.gradients_ready, strict=True)
    assert sum(sizes) == world.gradient_bytes
    assert list(shares) == sorted(shares) and 0 < shares[0] < shares[-1] <= 1
