"""What a report says of a run agrees with what was recorded, and rests on no more than that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.own.run import read_run
from paceline.report.render.html import render
from paceline.report.render.text import render as render_text
from tests.stored_runs import StoredRun, two_busy_ranks

ALONE = {"input": 0.01, "compute": 0.18, "optimizer": 0.01}


def answered(run: StoredRun, key: str) -> Answer:
    return {answer.key: answer for answer in answers(read_run(run.path))}[key]


def one_process(path: Path, *overrides: str, per_line: int = 20) -> StoredRun:
    run = StoredRun(path, [dict(ALONE)], [], ["data=/absent", *overrides], per_line)
    run.launch()
    run.begin()
    return run


def without(run: StoredRun, *names: str) -> None:
    """The record as 0.1.0 wrote it."""
    path = run.run.rank_events(0)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in event.items() if k not in names} for event in events]
    path.write_text("".join(json.dumps(event) + "\n" for event in kept))


# ---- the learning rate


def gone_on(path: Path) -> StoredRun:
    run = one_process(path, "steps=60")
    run.train(60)
    run.go_on("steps=120")
    run.train(60)
    return run


def test_a_run_that_went_on_with_more_steps_names_the_seam_and_both_rates(tmp_path: Path) -> None:
    answer = answered(gone_on(tmp_path / "a"), "rate")
    assert "rose from 0.0333 at step 1 to its peak of 0.4 at step 12" in answer.sentence
    assert (
        "After step 60 the run went on with another schedule (planned for 60 steps before, for 120 "
        "after): the rate jumped up from 0.00816 to 0.247 at step 61." in answer.sentence
    )
    assert not answer.figures["follows_recipe"]
    assert [seam["last_step"] for seam in answer.figures["seams"]] == [60]


def test_the_seam_of_an_older_run_is_found_by_its_rates_alone(tmp_path: Path) -> None:
    run = gone_on(tmp_path / "a")
    without(run, "rates", "losses", "steps_wanted")
    answer = answered(run, "rate")
    assert "After step 60 the run went on with another schedule: the rate jumped" in answer.sentence
    assert "the last step of each line" in answer.how


def test_an_older_run_that_a_newer_version_goes_on_with_names_its_seam(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=60")
    run.train(60)
    without(run, "rates", "losses", "steps_wanted")
    run.go_on("steps=120")
    run.train(60)
    text = answered(run, "rate").sentence
    assert "After step 60 the run went on with another schedule: the rate jumped up from" in text


def test_a_run_that_was_stopped_and_goes_on_as_planned_has_no_seam(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=120")
    run.train(60)
    run.go_on()
    run.train(60)
    answer = answered(run, "rate")
    assert answer.figures["follows_recipe"] and "went on" not in answer.sentence
    assert answer.figures["peak_step"] == 24


def test_rates_that_no_formula_gives_are_said_to_differ(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=60")
    run.train(60)
    path = run.run.rank_events(0)
    path.write_text(re.sub(r'"rates": \[[^]]*\]', f'"rates": {[0.7] * 20}', path.read_text()))
    answer = answered(run, "rate")
    assert "It was 0.7 from step 1 to step 60." in answer.sentence
    assert "not what the recipe's formula gives (steps 1 to 60 differ)" in answer.sentence


def test_charts_show_the_first_steps_and_a_peak_between_two_lines(tmp_path: Path) -> None:
    page = render(read_run(gone_on(tmp_path / "a").path))
    assert "learning rate: 0.4 at step 12<" in page
    assert "training loss, as it trains: 1 at step 1<" in page


def test_a_long_chart_keeps_its_peak_and_its_first_step(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=6000", "schedule.peak_at=0.0005", per_line=100)
    run.train(6000)
    page = render(read_run(run.path))
    (points,) = re.findall(r'class="line c3" points="([^"]*)"', page)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert heights.index(min(heights)) <= 2 and len(heights) < 310


# ---- trained


def test_below_one_epoch_a_run_is_not_trained_yet_whatever_its_score_does(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=120")
    for score in (0.03, 0.05, 0.02, 0.04):
        run.train(20, lambda step: 9.0 - step / 100)
        run.score(score, 8.0)
    run.train(40, lambda step: 9.0 - step / 100)
    answer = answered(run, "trained")
    assert answer.sentence.startswith(
        "Not trained yet: in 120 steps it saw 34 % of the training data, less than one epoch"
    )
    assert "training loss went from 8.8 to 7.8" in answer.sentence
    assert "steps=1055" in answer.remedy  # about three epochs
    assert "before one epoch was over" in answered(run, "rate").sentence
    assert "34 % of it, less than one epoch" not in answered(run, "data").sentence  # no card


def test_the_loss_of_every_step_tells_a_trend_where_lines_are_few(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=400", per_line=200)
    run.train(400)
    path = run.run.rank_events(0)
    falling = iter([[9 - n / 100 for n in range(200)], [7 - n / 100 for n in range(200)]])
    changed = re.sub(
        r'"losses": \[[^]]*\]', lambda _: f'"losses": {next(falling)}', path.read_text()
    )
    path.write_text(changed)
    assert answered(run, "trained").figures["state"] == "improving"


def test_a_score_that_scatters_leaves_the_word_to_the_loss(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=400", per_line=10)
    for score in (0.1, 0.32, 0.25, 0.36):
        run.train(100, lambda step: 3.0 - step / 200)
        run.score(score, 1.0)
    answer = answered(run, "trained")
    assert answer.figures["state"] == "improving"
    assert "because the noise of top1 is too large: not yet, it still falls" in answer.sentence


def test_a_run_that_ends_inside_of_its_warm_up_is_not_trained_yet(tmp_path: Path) -> None:
    settings = ("steps=1200", "schedule.policy=cosine", "schedule.warmup_steps=2000")
    run = one_process(tmp_path / "a", *settings)
    for loss in (2.0, 1.9, 1.9, 1.9, 1.9):
        run.train(240, lambda step: 2.0)
        run.score(0.3, loss)
    answer = answered(run, "trained")
    assert answer.sentence.startswith("Not trained yet: in 1,200 steps the learning rate was still")
    assert "schedule.warmup_steps=120" in answer.remedy
    told = answered(run, "rate").sentence
    assert "inside of its warm-up: the rate was still rising, which it does for 2,000" in told


def test_two_evaluations_with_a_clear_fall_between_them_tell_that_more_steps_help(
    tmp_path: Path,
) -> None:
    run = one_process(tmp_path / "a", "steps=1200", "schedule.policy=fixed")
    for loss in (1.9, 1.5):
        run.train(600, lambda step: 2.0)
        run.score(0.3, loss)
    answer = answered(run, "trained")
    assert answer.figures["state"] == "improving"
    assert "(steps 600 and 1,200) the validation loss fell from 1.9000 to 1.5000" in answer.sentence


# ---- checkpoints


def saving_run(path: Path, every: int, slower: float = 0.0) -> StoredRun:
    """Steps of 0.2 s; the one after a save takes longer, because a thread writes beside it."""
    settings = ("steps=100", f"checkpoint.every_steps={every}")
    run = one_process(path, *settings, per_line=1)
    for step in range(1, 101):
        after_save = step > every and step % every == 1 % every
        run.phases[0]["compute"] = 0.18 + (slower if after_save else 0.0)
        run.train(1, checkpoint=0.01 if step % every == 0 else 0.0)
        if step % every == 0:
            run.saved(copy_seconds=0.01, wait_seconds=0.0, until_step=step + 1)
    return run


def test_what_the_writing_thread_takes_from_the_steps_is_counted(tmp_path: Path) -> None:
    figures = answered(saving_run(tmp_path / "a", 10, slower=0.1), "checkpoint").figures
    assert figures["num_saves_on_the_way"] == 9  # no step follows the last
    assert figures["save_copy_seconds"] == pytest.approx(0.01)
    assert figures["save_slowed_seconds"] == pytest.approx(0.1, abs=0.02)
    plain = answered(saving_run(tmp_path / "b", 10), "checkpoint").figures
    assert plain["save_slowed_seconds"] == pytest.approx(0.0, abs=0.02)


def test_steps_that_happen_to_be_faster_beside_the_writing_thread_make_no_save_cheaper(
    tmp_path: Path,
) -> None:
    answer = answered(saving_run(tmp_path / "a", 10, slower=-0.005), "checkpoint")
    assert answer.figures["save_seconds"] == pytest.approx(answer.figures["save_copy_seconds"])
    assert "nothing for slower steps beside the writing thread" in answer.sentence


def test_how_sure_the_cost_of_a_save_is_is_said_with_the_number_of_saves(tmp_path: Path) -> None:
    sure = answered(saving_run(tmp_path / "a", 10, slower=0.1), "checkpoint").sentence
    assert re.search(r"On the way a save cost 0\.1\d s \(.* to .*\): copying 10\.0 ms and", sure)
    assert "; from 9 saves." in sure
    rough = answered(saving_run(tmp_path / "b", 50), "checkpoint").sentence
    assert "from 1 save, so this is rough." in rough


def test_the_frequency_already_used_is_not_offered(tmp_path: Path) -> None:
    answer = answered(saving_run(tmp_path / "a", 1), "checkpoint")
    assert list(answer.figures["share_by_every_steps"]) == ["1", "10"]
    assert "Saving at every step costs at least" in answer.sentence
    assert "every 1 step" not in answer.sentence.lower()
    assert "an unknown time for slower steps" in answer.sentence  # no step is without a write


def test_a_save_that_would_come_before_the_last_is_written_waits_for_it(tmp_path: Path) -> None:
    run = saving_run(tmp_path / "a", 10)
    path = run.run.rank_events(0)
    path.write_text(path.read_text().replace('"write_seconds": 0.25', '"write_seconds": 1.2'))
    shares = answered(run, "checkpoint").figures["share_by_every_steps"]
    assert shares["1"] == pytest.approx(1.01 / 1.21, abs=0.05)
    assert shares["100"] < 0.005


def test_the_last_save_of_an_attempt_is_not_held_against_the_next_one(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=60")
    run.train(60)
    run.saved(copy_seconds=0.01, until_step=61)
    run.go_on("steps=120")
    run.train(60)
    assert "num_saves_on_the_way" not in answered(run, "checkpoint").figures


# ---- whose load it was


def on_lab_hosts(path: Path, **facts: Any) -> StoredRun:
    """Two hosts, one process each, that keep the two cores of one machine busy."""
    run = StoredRun(path, two_busy_ranks(), ["one", "two"], ["steps=120", "data=/absent"])
    run.begin_facts.update(facts)
    run.environment(num_cores=2)
    run.launch()
    run.begin()
    for _ in range(6):
        run.train(20)
        run.probe(4.0, 20, 624_336, cpu=0.92)
    return run


def test_processes_on_another_host_of_the_same_machine_are_no_other_programs(
    tmp_path: Path,
) -> None:
    run = on_lab_hosts(tmp_path / "a", machine="boot-1", cores=[0, 1])
    busy = answered(run, "busy")
    assert busy.figures["own_cpu_share"] == pytest.approx(0.9, abs=0.01)
    assert "Other programs" not in busy.sentence
    assert "other programs" not in answered(run, "verdict").remedy


def test_the_load_of_a_start_is_no_load_of_other_programs(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "a", two_busy_ranks(), ["one", "two"], ["steps=60", "data=/absent"])
    run.begin_facts.update(machine="boot-1", cores=[0, 1])
    run.environment(num_cores=2)
    run.launch()
    run.probe(4.0, 0, 0, cpu=1.0)  # a script is watched while it imports
    run.begin()
    for cpu in (1.0, 0.3, 0.3):
        run.train(20)
        run.probe(4.0, 20, 624_336, cpu=cpu)
    run.probe(4.0, 0, 0, cpu=1.0)
    assert answered(run, "busy").figures["utilisation"] == pytest.approx(0.3)


def test_where_it_is_not_known_which_hosts_share_a_machine_the_report_says_so(
    tmp_path: Path,
) -> None:
    run = on_lab_hosts(tmp_path / "a")
    busy = answered(run, "busy")
    assert "own_cpu_share" not in busy.figures and "which hosts share a machine" in busy.missing
    assert "other programs" not in answered(run, "verdict").remedy


def test_traffic_that_is_not_the_runs_has_no_chart(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=60")
    run.train(60)
    run.probe(12.0, 60, 500_000)
    assert "Traffic" not in render(read_run(run.path))
    two = StoredRun(tmp_path / "b", two_busy_ranks(), overrides=["steps=60", "data=/absent"])
    two.begin()
    two.train(60)
    two.probe(12.0, 60, 500_000)
    assert "Traffic on lo, of all programs" in render(read_run(two.path))


# ---- words


def test_a_number_stays_on_the_line_of_its_unit(tmp_path: Path) -> None:
    text = render_text(read_run(gone_on(tmp_path / "a").path))
    assert not re.search(r"\d\n +(%|s|ms|min|h|MB|kB|bytes)\b", text)


# ---- a report checks itself


def test_steps_that_are_missing_from_the_record_are_counted(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=60")
    run.train(60)
    assert read_run(run.path).warnings == []
    path = run.run.rank_events(0)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))  # the second of three lines of steps
    assert any(
        text.startswith("20 of 60 steps are not in the record")
        for text in read_run(run.path).warnings
    )


def test_no_answer_asks_for_more_evaluations_while_another_asks_for_fewer(tmp_path: Path) -> None:
    run = one_process(tmp_path / "a", "steps=400", per_line=100)
    for score in (0.1, 0.3):
        run.train(200, evaluate=20.0)
        run.score(score, 1.0)
    assert "evaluate less often" in answered(run, "duration").remedy
    missing = answered(run, "trained").missing
    assert "2 evaluations, 4 are the least" in missing and "every_steps" not in missing
