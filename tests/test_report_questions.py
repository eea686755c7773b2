"""Answers of a report: figures, words, and what is said where evidence is missing or damaged."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.report.answers import answers
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.facts.facts import Options
from paceline.report.facts.trend import trend
from paceline.report.own.run import read_run
from paceline.report.report import open_report
from paceline.units import Scale
from tests import stored_runs
from tests.stored_runs import SCENES, StoredRun, two_busy_ranks


def answered(path: Path, options: Options | None = None) -> dict[str, Answer]:
    return {answer.key: answer for answer in answers(read_run(path, options))}


@pytest.mark.parametrize("name", SCENES)
def test_every_run_has_every_answer_in_order(tmp_path: Path, name: str) -> None:
    run = SCENES[name](tmp_path / "a")
    found = answers(read_run(run.path))
    assert [answer.key for answer in found] == list(QUESTIONS)
    for answer in found:
        assert answer.sentence.endswith("."), answer.key
        assert answer.figures or answer.missing or answer.key == "trained", answer.key
        json.dumps(answer.figures)


def test_the_parts_of_the_duration_add_up_to_the_wall_time(tmp_path: Path) -> None:
    figures = answered(stored_runs.restarted(tmp_path / "a").path)["duration"].figures
    parts = ["training", "evaluation", "checkpoint", "restart", "start_up", "shut_down"]
    total = sum(figures[f"{part}_seconds"] for part in [*parts, "unexplained"])
    assert total == pytest.approx(figures["wall_seconds"])
    assert figures["idle_seconds"] == pytest.approx(3600)
    assert figures["seconds_per_1000_steps"] == pytest.approx(200, rel=0.01)


def test_cost_counts_lost_work_and_hosts_that_idle(tmp_path: Path) -> None:
    path = stored_runs.restarted(tmp_path / "a").path
    figures = answered(path)["cost"].figures
    assert figures["cost"] == pytest.approx(3.6 * figures["host_hours"])
    assert figures["cost_of_lost_work"] == pytest.approx(3.6 * 20.2 / 3600)
    assert figures["cost_if_kept_while_idle"] == pytest.approx(figures["cost"] + 3.6)
    dearer = answered(path, Options(price_per_hour=36.0))["cost"].figures
    assert dearer["cost"] == pytest.approx(10 * figures["cost"])


@pytest.mark.parametrize(("scale", "points"), [("100", 0.62), ("1, as %", 62.0), (None, None)])
def test_a_point_of_a_score_is_what_the_task_says_and_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: Any, points: float | None
) -> None:
    scales = {"top1": Scale("score", scale)} if scale else {}
    monkeypatch.setattr("paceline.report.answers.cost.scales_of", lambda _workload: scales)
    figures = answered(stored_runs.overfitting(tmp_path / "a").path)["cost"].figures
    assert figures.get("score_points") == (pytest.approx(points, rel=0.01) if points else None)


def test_without_a_price_the_report_says_how_to_give_one(tmp_path: Path) -> None:
    answer = answered(stored_runs.three_steps(tmp_path / "a").path)["cost"]
    assert "cost" not in answer.figures and "--price" in answer.missing


def test_traffic_is_told_beside_what_the_ring_predicts(tmp_path: Path) -> None:
    figures = answered(stored_runs.plateaued(tmp_path / "a").path)["traffic"].figures
    assert figures["predicted_bytes_per_step"] == pytest.approx(2 * 3 / 4 * 10e6)
    assert figures["ratio"] == pytest.approx(1.03)


def test_on_one_host_the_loopback_counts_what_all_processes_sent(tmp_path: Path) -> None:
    figures = answered(stored_runs.overfitting(tmp_path / "a").path)["traffic"].figures
    assert figures["predicted_bytes_per_step"] == pytest.approx(2 * 312_168)
    assert figures["ratio"] == pytest.approx(1.01)


def test_a_link_given_by_hand_is_believed(tmp_path: Path) -> None:
    path = stored_runs.plateaued(tmp_path / "a").path
    by_itself = answered(path)["network"].figures["wire_seconds_per_step"]
    slower = answered(path, Options(link_bits_per_second=1e8))["network"].figures
    assert slower["wire_seconds_per_step"] == pytest.approx(10 * by_itself)


def test_the_gap_of_an_overfitting_run_is_found_where_it_opens(tmp_path: Path) -> None:
    figures = answered(stored_runs.overfitting(tmp_path / "a").path)["overfitting"].figures
    assert figures["is_overfitting"] and figures["parts_at_step"] == 400
    assert figures["best_step"] == 400 and figures["is_kept"]
    other = answered(stored_runs.plateaued(tmp_path / "b").path)["overfitting"]
    assert not other.figures["is_overfitting"] and other.sentence.startswith("No: ")


def test_states_of_training_are_told_apart(tmp_path: Path) -> None:
    states = {
        name: answered(make(tmp_path / name).path)["trained"].figures["state"]
        for name, make in SCENES.items()
    }
    assert states == {
        "overfitting": "worsening",
        "plateaued": "plateaued",
        "diverged": "diverged",
        "restarted": "improving",
        "three-steps": "untrained",
        "only-a-recipe": "unknown",
    }


def test_a_divergence_that_was_overcome_is_not_held_against_the_run(tmp_path: Path) -> None:
    run = stored_runs.diverged(tmp_path / "a")
    run.attempt = 2
    run.launch()
    run.begin(step=200)
    run.train(300, lambda step: 1.3 - step / 1000)
    assert answered(run.path)["trained"].figures["state"] == "improving"


def test_the_published_target_of_a_recipe_is_held_against_the_score(tmp_path: Path) -> None:
    run = StoredRun(
        tmp_path / "a",
        two_busy_ranks(),
        overrides=["steps=100", "target.score=0.9", "target.source=someone"],
    )
    run.begin()
    run.train(100)
    run.score(0.85, 0.4)
    answer = answered(run.path)["trained"]
    assert "0.05 short of the recipe's target of 0.9 (someone)" in answer.sentence


@pytest.mark.parametrize(("slope", "rises"), [(0.0, False), (1e-5, False), (1e-2, True)])
def test_a_slope_counts_only_when_it_exceeds_the_noise(slope: float, rises: bool) -> None:
    steps = np.arange(10.0, 210.0, 10.0)
    noise = np.array([stored_runs.wobble(int(step), 0.05) for step in steps])
    found = trend(steps, slope * steps + noise)
    assert found is not None and found.rises == rises
    assert trend(steps[:3], steps[:3]) is None


def test_one_wild_point_does_not_make_a_trend() -> None:
    steps = np.arange(10.0, 110.0, 10.0)
    values = np.full(10, 0.5)
    values[-1] = 5.0
    found = trend(steps, values)
    assert found is not None and not found.rises and found.slope == pytest.approx(0.0)


def test_a_rise_within_wild_scatter_is_unclear_and_more_evaluations_are_asked_for(
    tmp_path: Path,
) -> None:
    run = StoredRun(tmp_path / "a", two_busy_ranks(), overrides=["steps=400", "data=/absent"])
    run.begin()
    for top1 in (0.1, 0.32, 0.25, 0.36):
        run.train(100)
        run.score(top1, 1.0)
    answer = answered(run.path)["trained"]
    assert answer.figures["state"] == "unclear" and "evaluate.every_steps" in answer.missing


def test_traffic_of_others_is_not_taken_for_the_exchange_of_gradients(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "a", two_busy_ranks(), overrides=["steps=120", "data=/absent"])
    run.begin()
    for _ in range(6):
        run.train(20)
        run.probe(4.0, 20, 3 * 624_336)
    answer = answered(run.path)["traffic"]
    assert answer.figures["ratio"] == pytest.approx(3.0)
    assert "The rest is other traffic on lo" in answer.sentence


def answer_of_a_busy_machine(path: Path, num_cores: int, **facts: float) -> Answer:
    overrides = ["steps=120", "data=/absent"]
    run = StoredRun(path, two_busy_ranks(), overrides=overrides, begin_facts=facts)
    run.environment(num_cores=num_cores)
    run.launch()
    run.begin()
    for _ in range(6):
        run.train(20)
        run.probe(4.0, 20, 624_336, cpu=0.99)
    return answered(run.path)["busy"]


def test_a_machine_that_is_busy_with_something_else_is_told_apart(tmp_path: Path) -> None:
    answer = answer_of_a_busy_machine(tmp_path / "a", num_cores=32)
    assert answer.figures["own_cpu_share"] < 0.1
    assert "Other programs used the machine as well" in answer.sentence


def test_more_operations_than_a_plain_product_are_explained(tmp_path: Path) -> None:
    answer = answer_of_a_busy_machine(tmp_path / "a", num_cores=2, flops_per_unit=400e6)
    assert answer.figures["share_of_peak"] > 1
    assert "fewer operations than are counted" in answer.sentence


# ---- damaged and strange records


def test_a_torn_last_line_of_every_file_is_passed_over(tmp_path: Path) -> None:
    run = stored_runs.overfitting(tmp_path / "a")
    before = read_run(run.path)
    for file in run.run.events.iterdir():
        file.write_bytes(file.read_bytes() + b'{"kind": "steps", "attempt": 1, "step": 1010, "lo')
    after = read_run(run.path)
    assert (after.step, after.phases) == (before.step, before.phases)
    assert answers(after) == answers(before)


def test_rubbish_in_a_line_costs_that_line_and_no_more(tmp_path: Path) -> None:
    run = stored_runs.overfitting(tmp_path / "a")
    lines = [
        {"kind": "steps", "attempt": 1, "time": 1.0, "step": 5, "loss": "high"},
        {"kind": "steps", "attempt": "one", "time": 1.0, "step": 5},
        {"kind": "steps", "attempt": 1, "time": 1.0, "step": 5, "phases": [1]},
        {"kind": "begin", "attempt": 1, "time": 1.0},
        [1, 2],
        "text",
        None,
    ]
    rows = len(read_run(run.path).learning.loss)
    with run.run.rank_events(0).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    assert len(read_run(run.path).learning.loss) == rows


def mangled(event: Any, chance: random.Random) -> Any:
    """One value gone, or of another kind."""
    name = chance.choice(list(event))
    others: list[Any] = [None, "x", -1, math.nan, [], {}]
    changed = {**event, name: chance.choice(others)}
    return changed if chance.random() < 0.8 else {k: v for k, v in event.items() if k != name}


@pytest.mark.parametrize("name", SCENES)
def test_values_of_another_kind_anywhere_never_break_a_report(tmp_path: Path, name: str) -> None:
    run = SCENES[name](tmp_path / "a")
    chance = random.Random(name)
    for file in run.run.events.iterdir():
        events = [json.loads(line) for line in file.read_text().splitlines()]
        lines = [json.dumps(mangled(e, chance) if chance.random() < 0.2 else e) for e in events]
        file.write_text("\n".join(lines) + "\n")
    report = open_report([run.path], Options())
    assert report.text() and report.html() and report.markdown() and json.loads(report.json())


def test_why_an_attempt_failed_is_told_in_the_words_of_the_launcher(tmp_path: Path) -> None:
    run = stored_runs.three_steps(tmp_path / "a")
    run.attempt = 2
    run.launch()
    run.write(run.run.launcher_events, "exit", code=1, reason="host", text="host two is gone")
    assert "attempt 2 ended: host two is gone" in read_run(run.path).warnings


def test_a_missing_rank_file_is_said_and_the_rest_is_told(tmp_path: Path) -> None:
    run = stored_runs.plateaued(tmp_path / "a")
    run.run.rank_events(2).unlink()
    facts = read_run(run.path)
    assert "no events of rank 2: what they did, and who waited for them, is not known" in (
        facts.warnings
    )
    assert facts.verdict.word == "network"


def test_without_the_file_of_the_first_rank_the_next_one_tells_the_story(tmp_path: Path) -> None:
    run = stored_runs.plateaued(tmp_path / "a")
    wall = read_run(run.path).wall_seconds
    run.run.rank_events(0).unlink()
    facts = read_run(run.path)
    assert facts.step == 1200 and facts.wall_seconds == pytest.approx(wall)
    assert any("no events of rank 0" in warning for warning in facts.warnings)


@pytest.mark.parametrize("jump", [7200.0, -7200.0])
def test_a_clock_that_jumps_changes_no_duration_and_is_said(tmp_path: Path, jump: float) -> None:
    steady, jumping = (
        StoredRun(tmp_path / name, two_busy_ranks(), overrides=["steps=400", "data=/absent"])
        for name in ("steady", "jumping")
    )
    for run in (steady, jumping):
        run.launch()
        run.begin()
        run.train(200)
        run.now += jump if run is jumping else 0.0
        run.train(200)
        run.end()
        run.exit()
    expected, found = read_run(steady.path), read_run(jumping.path)
    assert found.wall_seconds == pytest.approx(expected.wall_seconds)
    assert found.phases == pytest.approx(expected.phases)
    way = "forward" if jump > 0 else "back"
    assert any(f"jumped 2 h 00 min {way} " in warning for warning in found.warnings)
    assert not expected.warnings


def test_two_attempts_that_write_at_the_same_time_are_taken_apart(tmp_path: Path) -> None:
    """A worker of a lost host that did not notice goes on beside the second attempt."""
    run = StoredRun(tmp_path / "a", two_busy_ranks(), overrides=["steps=200", "data=/absent"])
    run.launch()
    run.begin()
    run.train(100, lambda step: 2.0)
    run.attempt = 2
    run.launch()
    run.begin(step=50)
    for _ in range(5):
        zombie, run.attempt, run.step = run.step, 1, 100
        run.train(10, lambda step: 99.0)
        run.attempt, run.step = 2, zombie
        run.train(10, lambda step: 1.0)
    facts = read_run(run.path)
    assert facts.step == 100
    assert facts.learning.loss.steps.tolist() == [10.0 * n for n in range(1, 11)]
    assert 99.0 not in facts.learning.loss.values
    assert sum(facts.phases.values()) == pytest.approx(facts.wall_seconds)
    assert any("attempts 1 and 2 ran at the same time" in text for text in facts.warnings)


def test_a_run_on_another_machine_has_a_report_without_its_data(tmp_path: Path) -> None:
    answer = answered(stored_runs.three_steps(tmp_path / "a").path)["data"]
    assert "'/absent' is not on this machine" in answer.sentence and answer.missing


def test_a_run_that_exchanges_otherwise_tells_what_that_cost_and_bought(tmp_path: Path) -> None:
    facts = {"reduce": "diloco", "exchanged_every": 32, "gradient_bytes": 40_000_000}
    step = {"compute": 0.5, "network": 0.01}
    run = stored_runs.StoredRun(
        tmp_path / "a", [step, step], hosts=["a", "b"], gradient_bytes=625_000, begin_facts=facts
    )
    run.begin()
    run.train(100)
    told = answered(run.path, Options(link_bits_per_second=1e8))["exchange"]
    assert "1/64 of the 40.0 MB that plain takes" in told.sentence
    assert "after 16.5 steps on average" in told.sentence
    assert 3.5 < told.figures["plain_step_seconds"] < 4.5  # 40 MB at 94 Mbit/s, and compute
    assert "--link" in answered(run.path)["exchange"].missing


def test_a_run_that_exchanges_as_all_do_is_not_asked(tmp_path: Path) -> None:
    assert "exchange" not in answered(stored_runs.restarted(tmp_path / "a").path)
