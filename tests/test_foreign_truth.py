"""Logs that are cut, mixed or of several ranks: no figure is wrong, and what cannot be is said.
Expected figures are worked out by hand beside each log."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.facts.consistency import checked
from paceline.report.facts.facts import Facts, Options, StepTimes
from paceline.report.foreign import read_foreign, read_log
from paceline.report.report import open_report
from paceline.units import parse_link_speed
from tests.log_answers import answers_of, answers_of_log, heading_of
from tests.test_foreign_events import Row, name_of, training, write_rows
from tests.test_foreign_text import (
    CONFIG,
    by_key,
    epoch_lines,
    imagenet_log,
    seq2seq_head,
    seq2seq_log,
    seq2seq_steps,
    test_lines,
    written,
)


def answered(path: Path, **options: Any) -> dict[str, Answer]:
    return by_key(answers_of_log(path, **options))


def joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


# A step of 36 s sends 2 x 3/4 x 240 MB = 360 MB, 2.88 Gbit: 80 Mbit/s at least.
def test_a_link_that_cannot_be_leaves_everything_that_rests_on_it_open(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    found = answered(path, link=parse_link_speed("10Mbit"))
    said = "the link cannot have been 10 Mbit/s: what a step of 36.0 s sends needs at least"
    for key in ("network", "traffic", "verdict", "busy"):
        assert said in found[key].sentence, key
        assert "80 Mbit/s" in found[key].sentence, key
    assert found["verdict"].figures["verdict"] == "unclear"
    told = " ".join(found[key].sentence for key in ("network", "traffic", "verdict", "busy"))
    for wrong in ("100 %", "took no time", "would take", "Yes", "No:"):
        assert wrong not in told
    assert not found["verdict"].remedy


def test_answers_5_and_11_agree_at_any_link(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    for speed in ("40Mbit", "75Mbit", "78Mbit", "80Mbit", "82Mbit", "100Mbit", "1Gbit", "100Gbit"):
        found = answered(path, link=parse_link_speed(speed))
        shares = found["network"].figures.get("network_share")
        explained = found["traffic"].figures["explained_share"]
        assert shares == explained or shares == pytest.approx(explained)
        is_impossible = "cannot have been" in found["traffic"].sentence
        assert is_impossible == ("cannot have been" in found["network"].sentence)
        assert is_impossible == (parse_link_speed(speed) * 1.05 < 80e6)


def test_a_wall_time_shorter_than_its_steps_is_said_not_to_fit(tmp_path: Path) -> None:
    path = written(tmp_path, imagenet_log() + "Wall time: 1min 2s\n")
    found = answered(path)
    # 2 x 91 steps of 1 s, and two evaluations of 10 x 1.5 s.
    said = "the parts of the time add up to 3 min 32 s, more than the 1 min 02 s"
    assert said in found["duration"].sentence
    assert said in found["cost"].sentence
    assert found["duration"].figures["doubts"]


def test_shares_of_more_than_a_whole_are_no_verdict(tmp_path: Path) -> None:
    facts = read_log(written(tmp_path, imagenet_log()))
    doubled = {"input": 0.9, "network": 0.8}
    facts = Facts(**{**vars(facts), "verdict": _with_shares(facts, doubled)})
    found = by_key(answers(checked(facts)))
    assert found["verdict"].figures["verdict"] == "unclear"
    assert "the shares of a step add up to 170 %" in found["verdict"].sentence


def _with_shares(facts: Facts, shares: dict[str, float]) -> Any:
    return type(facts.verdict)(**{**vars(facts.verdict), "shares": shares})


def test_own_runs_check_themselves_too() -> None:
    steps = StepTimes(100, 1.0, 1.0, None, None, timings=None)  # type: ignore[arg-type]
    facts = checked(Facts(Path("run"), wall_seconds=50.0, step_times=steps))
    assert facts.doubts[0].text.startswith("100 steps of 1.00 s are 1 min 40 s, more than the 50")


# 41 lines 100 steps apart, each the mean of 100 steps of 2 s: 41 x 100 x 2 s = 2 h 16 min 40 s.
def test_a_log_that_begins_in_the_middle_is_timed_by_its_step_numbers(tmp_path: Path) -> None:
    lines = seq2seq_steps(52_200, 56_200, seconds=2.0)
    run = read_foreign(written(tmp_path, joined(lines)))
    assert (run.first_step, run.step) == (52_101, 56_200)
    assert run.step_times.total_seconds == pytest.approx(41 * 100 * 2.0)
    found = by_key(answers_of(run))
    assert found["duration"].sentence.startswith("About 2 h 16 min from step 52,101 to step 56,200")
    assert any("begins in the middle, at step 52,101" in line for line in heading_of(run))


def test_an_evaluation_without_a_step_is_not_put_at_step_0(tmp_path: Path) -> None:
    early = ["***     Validation loss: 2.5000 ", "***     Eval BLUE score: 0.3"]
    later = ["***     Validation loss: 2.2500 ", "***     Eval BLUE score: 0.4"]
    lines = [*early, *seq2seq_steps(52_200, 53_000), *later]
    run = read_foreign(written(tmp_path, joined(lines)))
    assert run.validation_loss.points == [(53_000, 2.25)]
    assert run.scores["BLEU"].points == [(53_000, 0.4)]
    assert any("left out" in note and "2.5" in note for note in run.notes)


# Epoch 3 begins after 300 steps; its running mean is over all of its steps, also unseen ones.
def test_the_middle_of_an_epoch_tells_the_epoch_from_its_begin(tmp_path: Path) -> None:
    lines = [" * Acc@1 30.000 Acc@5 60.000"] * 0 + epoch_lines(3)[5:] + test_lines(3)
    run = read_foreign(written(tmp_path, joined(lines)))
    assert run.first_step == 301
    assert run.step_times.num_steps == 91
    assert "from step 301 to step 400" in by_key(answers_of(run))["duration"].sentence


def test_a_cut_log_without_times_costs_no_host_hours(tmp_path: Path) -> None:
    lines = [f"*** Global step {step}: *** Train loss: 2.5 " for step in range(5000, 6000, 100)]
    found = answered(written(tmp_path, joined(lines)))
    assert found["cost"].sentence == "The log holds no times."
    assert "host_hours" not in found["cost"].figures


# Two loader workers: every second step waits. 0.36 s and 3.00 s in turn are 1.68 s on average.
def test_the_length_of_a_step_is_the_mean_of_all_and_printed_ones_a_sample(tmp_path: Path) -> None:
    lines = [
        f"Epoch: [0][{index:4d}/1000]\tTime  3.000 ( 1.680)\tData  2.700 ( 1.380)\t"
        "Loss 2.5e+00 (2.5e+00)"
        for index in range(0, 1000, 50)
    ]
    found = answered(written(tmp_path, joined(lines)))
    assert found["step"].sentence.startswith("1.68 s, the mean over 951 steps.")
    assert "are a sample: their median is 3.00 s" in found["step"].sentence
    assert found["input"].figures["step_seconds"] == pytest.approx(1.68)
    assert found["input"].figures["input_share"] == pytest.approx(1.38 / 1.68)
    assert found["duration"].figures["training_seconds"] == pytest.approx(951 * 1.68)


def test_single_times_of_an_event_file_are_a_sample_and_stamps_tell_of_all_steps(
    tmp_path: Path,
) -> None:
    rows: list[Row] = []
    for step in range(50, 1001, 50):
        rows += [("train/loss", step, 1.68 * step, 2.0), ("batch_time", step, 1.68 * step, 3.0)]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step_times.mean_seconds == pytest.approx(1.68)
    assert by_key(answers_of(run))["step"].sentence.startswith("1.68 s, the mean over 950 steps")


def ranks_log(waits: list[float], prefix: str = "") -> str:
    lines = []
    each = [epoch_lines(0, 1.0, wait) for wait in waits]
    for index in range(len(each[0])):
        lines += [
            f"{prefix.format(rank)}{rank_lines[index]}" for rank, rank_lines in enumerate(each)
        ]
    return joined(lines)


@pytest.mark.parametrize("prefix", ["", "{}: ", "[1,{}]<stdout>:", "[rank{}]: ", "[pod/w-{}/m] "])
def test_the_slowest_rank_sets_the_pace_and_is_named(tmp_path: Path, prefix: str) -> None:
    path = written(tmp_path, ranks_log([0.05, 0.81, 0.06], prefix))
    run = read_foreign(path)
    assert (run.world, run.step) == (3, 91)
    assert run.step_times.total_seconds == pytest.approx(91.0)
    found = answered(path)
    assert found["verdict"].sentence.startswith("Input: 81 % of the step is waiting for the next")
    assert "the straggler: the others wait for their own batches for at most 6.0 %" in (
        found["verdict"].sentence
    )
    name = {"": "process 2 of the log", "[pod/w-{}/m] ": "w-1/m"}.get(prefix, "rank 1")
    assert f"That is {name}, the straggler" in found["verdict"].sentence
    assert "31 %" not in str(found)  # the mean


def test_ranks_that_wait_alike_have_no_straggler_and_nothing_is_1_times_as_fast(
    tmp_path: Path,
) -> None:
    found = answered(written(tmp_path, ranks_log([0.30, 0.31])))
    assert "straggler" not in found["verdict"].sentence.replace("a straggler (one slow", "")
    assert "All 2 processes wait for it alike" in found["verdict"].sentence
    assert "A loader 1.4 times as fast would keep up" in found["verdict"].sentence
    assert "1 times as fast" not in found["verdict"].sentence
    idle = answered(written(tmp_path, imagenet_log(data=0.0), "idle.log"))
    assert "(no faster)" in idle["input"].sentence


def test_a_line_that_a_logger_printed_twice_is_not_a_second_process(tmp_path: Path) -> None:
    once = imagenet_log()
    twice = joined([line for line in once.splitlines() for _ in range(2)])
    run, plain = (
        read_foreign(written(tmp_path, text, f"{n}")) for n, text in enumerate([twice, once])
    )
    assert run.world is None
    assert run.step_times.total_seconds == plain.step_times.total_seconds


def test_directories_with_train_in_their_names_are_different_runs(tmp_path: Path) -> None:
    write_rows(tmp_path / "train-small" / name_of(1), training(steps=range(1, 51)))
    write_rows(
        tmp_path / "train-large" / "e.out.tfevents.2.host.7.0", training(steps=range(1, 101))
    )
    run = read_foreign(tmp_path)
    assert run.training_loss.num_points == 100
    assert any("there are 2 runs here" in note for note in run.notes)


def lightning(path: Path, last: int, begin: float = 0.0, first: int = 49, level: float = 5) -> None:
    rows = [
        ("train_loss", step, begin + 2.0 * step, level - step / 500)
        for step in range(first, last + 1, 50)
    ]
    write_rows(path / name_of(), rows)


def test_a_first_logged_step_of_49_is_no_resumed_run(tmp_path: Path) -> None:
    lightning(tmp_path / "version_0", 499)
    lightning(tmp_path / "version_1", 999, begin=5000.0)
    run = read_foreign(tmp_path)
    assert run.training_loss.num_points == 20
    assert run.wall_seconds == pytest.approx(2.0 * 950)
    assert not any("it was resumed" in note for note in run.notes)


def test_a_run_resumed_in_another_directory_is_known_by_its_loss_and_its_clock(
    tmp_path: Path,
) -> None:
    lightning(tmp_path / "version_0", 499)
    lightning(tmp_path / "version_1", 999, begin=5000.0, first=349)
    run = read_foreign(tmp_path)
    assert any("it was resumed at step 349" in note for note in run.notes)
    assert run.training_loss.num_points == 20
    other = tmp_path / "other"
    lightning(other / "version_0", 499)
    lightning(other / "version_1", 999, begin=5000.0, first=349, level=9)
    assert not any("it was resumed" in note for note in read_foreign(other).notes)


def test_a_text_log_beside_event_files_is_of_the_same_run(tmp_path: Path) -> None:
    rows = [("train/loss", step, 1.0 * step, 3.0) for step in range(1, 201)]
    write_rows(tmp_path / "run" / name_of(), rows)
    written(tmp_path / "run", imagenet_log())
    run = read_foreign(tmp_path / "run")
    assert run.wall_seconds == pytest.approx(199.0)
    assert run.step_times.input_share == pytest.approx(0.9)
    assert run.scores["top-1"].points == [(100, 20.0), (200, 22.5)]
    assert not any("runs here" in note for note in run.notes)


def test_many_runs_in_a_directory_are_listed_shortly(tmp_path: Path) -> None:
    for number in range(40):
        lightning(tmp_path / f"version_{number}", 99 + 50 * number)
    note = next(note for note in read_foreign(tmp_path).notes if "runs here" in note)
    assert note.startswith("there are 40 runs here")
    assert note.endswith("and 34 more")
    assert len(note) < 250


def hugging_face() -> list[Row]:
    rows: list[Row] = []
    for step in range(10, 101, 10):
        rows.append(("train/loss", step, 3600 + 2.0 * step, 5 - step / 50))
    rows += [("eval/loss", 100, 3830.0, 3.1), ("eval/runtime", 100, 3830.0, 30.0)]
    for tag, value in (
        ("train/train_runtime", 231.5),
        ("train/train_samples_per_second", 13.0),
        ("train/train_steps_per_second", 0.43),
        ("train/train_loss", 4.0),
    ):
        rows.append((tag, 100, 3831.0, value))
    return rows


def test_a_summary_at_the_end_is_no_clock_and_the_runtime_is_believed(tmp_path: Path) -> None:
    rows: list[Row] = [("memory", 0, 0.0, 1.0), *hugging_face()]  # an hour of download follows
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step_times.mean_seconds == pytest.approx(2.0)
    assert run.wall_seconds == pytest.approx(231.5)
    assert run.evaluation_seconds == pytest.approx(30.0)
    assert run.training_loss.num_points == 10


def test_a_download_before_training_is_not_its_beginning_and_validation_is_its_end(
    tmp_path: Path,
) -> None:
    rows = [("memory", 0, 0.0, 1.0), *(r for r in hugging_face() if "runtime" not in r[0])]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    # From step 10, at 3,620 s, to the summary after the evaluation, at 3,831 s.
    assert run.wall_seconds == pytest.approx(3831.0 - 3620.0)


def curves(path: Path, **tags: list[float]) -> Path:
    rows: list[Row] = [*training(steps=range(1, 101))]
    for tag, values in tags.items():
        every = 100 // len(values)
        rows += [
            (tag.replace("__", "/"), every * (n + 1), 2.0 * every * (n + 1), value)
            for n, value in enumerate(values)
        ]
    return write_rows(path / name_of(), rows)


def test_validation_loss_says_whether_it_is_trained_where_there_is_no_score(tmp_path: Path) -> None:
    flat = [3.0, 2.5, 2.2, 2.01, 2.0, 2.01, 2.0, 1.99, 2.0, 2.0]
    found = answered(curves(tmp_path, val__loss=flat))
    assert found["trained"].figures["state"] == "plateaued"
    assert "the validation loss stayed at" in found["trained"].sentence


def test_word_errors_that_fall_are_an_improvement_and_the_lowest_is_the_best(
    tmp_path: Path,
) -> None:
    errors = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2]
    found = answered(curves(tmp_path, eval__wer=errors))
    assert found["trained"].figures["state"] == "improving"
    assert "WER was still falling, to 0.2" in found["trained"].sentence
    assert "at best 0.2 at step 100" in found["trained"].sentence
    assert found["overfitting"].sentence.startswith("No sign of it: WER")
    assert "trained too long" not in found["trained"].sentence


def test_one_last_point_that_is_worse_is_no_overfitting(tmp_path: Path) -> None:
    once = [3.0, 2.5, 2.2, 2.1, 2.0, 1.9, 1.8, 1.7, 1.6, 2.4]
    assert (
        answered(curves(tmp_path / "a", val__loss=once))["overfitting"].figures["is_overfitting"]
        is False
    )
    twice = [*once[:-1], 2.4, 2.5]
    assert answered(curves(tmp_path / "b", val__loss=twice))["overfitting"].figures[
        "is_overfitting"
    ]


def test_no_loss_is_predicted_below_zero(tmp_path: Path) -> None:
    steep = [1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01]
    found = answered(curves(tmp_path, val__loss=steep))["trained"]
    assert "cannot be told from so steep a line" in found.sentence
    assert "would probably change it by -" not in found.sentence


def test_a_rate_near_zero_means_that_no_more_is_coming(tmp_path: Path) -> None:
    scores = [10.0 * n for n in range(1, 11)]
    rates = [1.0, 0.9, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0.001]
    found = answered(curves(tmp_path, val__acc1=scores, lr=rates))["trained"]
    assert "the learning rate is almost zero by now, so no more is coming" in found.sentence
    assert found.figures["score_gain_of_10_percent"] is None


def test_the_window_begins_where_the_rate_dropped(tmp_path: Path) -> None:
    # The drop at step 84 lifts the score at once; after it nothing moves.
    scores = [40.0] * 20 + [60.0] * 4
    rates = [1.0] * 20 + [0.1] * 4
    found = answered(curves(tmp_path, val__acc1=scores, lr=rates))["trained"]
    assert found.figures["state"] == "plateaued"
    assert "after the learning rate dropped at step 84" in found.sentence


FAILED_STARTS = {
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB": ("memory", "smaller batch"),
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train'": ("file", "every host"),
    "ssh: Could not resolve hostname node7: Name or service not known": ("name", "getent hosts"),
    "There are not enough slots available in the system to satisfy the 8 slots": (
        "slots",
        "slots=N",
    ),
}


@pytest.mark.parametrize("line", FAILED_STARTS)
def test_a_start_that_failed_says_what_failed_and_what_to_do(tmp_path: Path, line: str) -> None:
    head = "Namespace(arch='resnet50', batch_size=4096, workers=4)\nTraceback (most recent call):\n"
    for name, text in (("plain.log", head), ("seq.log", joined(seq2seq_head()))):
        path = written(tmp_path, f"{text}{line}\nmpirun: exited on signal 9\n", name)
        found = answered(path)["verdict"]
        assert found.sentence.startswith("It failed before its first step: ")
        what, remedy = FAILED_STARTS[line]
        assert what in found.sentence
        assert line[:60] in found.sentence
        assert remedy in found.remedy
        assert "batch" in found.sentence  # what the configuration says
        assert "host-hours" not in open_report([path], Options()).text()


def test_a_text_without_a_known_failure_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a log that Paceline knows"):
        read_foreign(written(tmp_path, "hello\nnothing is wrong here\n"))


def test_an_error_that_a_resumed_run_outlived_is_history(tmp_path: Path) -> None:
    before = [*epoch_lines(0), *epoch_lines(1), "RuntimeError: NCCL timeout"]
    lines = [*before, *epoch_lines(1), *test_lines(1)]
    run = read_foreign(written(tmp_path, joined(lines)))
    told = heading_of(run)
    assert any("an earlier part ended with: RuntimeError: NCCL timeout" in line for line in told)
    assert not any("it ended with" in line for line in told)


def test_a_checkpoint_in_mixed_precision_has_14_bytes_a_parameter(tmp_path: Path) -> None:
    mixed = answered(written(tmp_path, seq2seq_log()))["checkpoint"]
    assert mixed.figures["predicted_bytes"] == 14 * 60_000_000
    assert CONFIG["dtype"] == "mixed"
    plain = seq2seq_log().replace("'mixed'", "<dtype: 'float32'>")
    whole = answered(written(tmp_path, plain, "plain.log"))["checkpoint"]
    assert whole.figures["predicted_bytes"] == 12 * 60_000_000


def test_a_last_line_torn_anywhere_loses_that_line_only(tmp_path: Path) -> None:
    text = joined(epoch_lines(0))
    last = text.rstrip("\n").rfind("\n") + 1
    for cut in range(last, len(text) + 1):
        run = read_foreign(written(tmp_path, text[:cut]))
        assert run.step_times.input_share == pytest.approx(0.9)
        assert run.step_times.num_steps in (81, 91)


PREFIXES = (
    "0: ",
    "[1,0]<stdout>:",
    "Tue Nov 17 05:36:04 2026[1,0]<stdout>:",
    "[prterun-node-12@1,0]<stdout>: ",
    "[pod/train-0/main] 2024-01-02T03:04:05.678901234Z ",
    "2024-01-02T03:04:05.678Z ",
    "2024-01-02 03:04:05,678 - INFO - ",
    "trainer-1  | ",
    "[default0]:",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("make", [imagenet_log, seq2seq_log])
def test_no_prefix_hides_a_line(tmp_path: Path, prefix: str, make: Any) -> None:
    end = "" if make is seq2seq_log else "Wall time: 5min 3s\n"
    plain, marked = (
        read_foreign(written(tmp_path, text, name))
        for name, text in (
            ("plain", make() + end),
            ("marked", joined([prefix + line for line in (make() + end).splitlines()])),
        )
    )
    for name in ("step", "wall_seconds", "evaluation_seconds", "num_parameters", "scores"):
        assert getattr(marked, name) == getattr(plain, name), name
    assert marked.step_times.total_seconds == plain.step_times.total_seconds
    assert marked.validation_loss == plain.validation_loss


def test_output_that_cannot_print_a_character_prints_another(tmp_path: Path) -> None:
    path = written(tmp_path, imagenet_log())
    result = subprocess.run(
        [sys.executable, "-m", "paceline.cli", "report", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert not result.stderr
    assert b"####" in result.stdout
