"""What a report says of runs written by hand: finished, empty, short, killed and damaged ones."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from paceline import config, recipe
from paceline.errors import UserError
from paceline.files import sha256_of
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile, write_file
from paceline.report.answers import answers
from paceline.report.own.run import read_run
from paceline.report.render.csv import write_csv
from paceline.report.render.text import render
from paceline.schedule import rate_at

FACTS = {
    "world_size": 2,
    "device": "cpu",
    "unit": "image",
    "best_by": "top1",
    "num_parameters": 78_042,
    "gradient_bytes": 312_168,
}


class Writer:
    """A run directory, told what happened when."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.run = RunDirectory(path)
        loaded = recipe.load("cifar10-tiny", ["steps=30", *overrides])
        write_file(self.run.recipe, config.to_yaml(config.dump(loaded)))
        self.loaded = loaded

    def launcher(self, kind: str, when: float, attempt: int = 1, **fields: Any) -> None:
        self._write(self.run.launcher_events, kind, when, attempt, fields)

    def rank(self, kind: str, when: float, attempt: int = 1, **fields: Any) -> None:
        self._write(self.run.rank_events(0), kind, when, attempt, fields)

    def _write(
        self, path: Path, kind: str, when: float, attempt: int, fields: dict[str, Any]
    ) -> None:
        events = EventFile(path, attempt)
        events.write(kind, **{**fields, "time": when})
        events.close()

    def begin(self, when: float, seconds: float, step: int = 0, attempt: int = 1) -> None:
        start_up = {"seconds": seconds, "phases": {"start-up": seconds}}
        self.rank("begin", when, attempt, step=step, position=4 * step, **start_up, **FACTS)

    def steps(self, when: float, step: int, attempt: int = 1, **more: Any) -> None:
        """Ten steps of 1 s, 128 pictures each: 8 s compute, 1 s input, 1 s network."""
        fields = {
            "num_steps": 10,
            "loss": 2.5 - step / 20,
            "rate": rate_at(self.loaded.schedule, step, self.loaded.steps),
            "num_units": 1280,
            "seconds": 10.0,
            "phases": {"compute": 8.0, "input": 1.0, "network": 1.0},
            "step_seconds": [1.0] * 10,
            "epochs": step / 10,
            "gradient_norm": 3.0,
            **more,
        }
        self.rank("steps", when, attempt, step=step, **fields)

    def score(self, when: float, step: int, top1: float, attempt: int = 1) -> None:
        self.rank(
            "score",
            when,
            attempt,
            step=step,
            split="validation",
            scores={"top1": top1, "loss": 1.25},
            signature="validation:200 pictures",
        )

    def checkpoint(self, step: int, state: dict[str, Any] | None = None) -> Path:
        path = self.run.checkpoints / stored.checkpoint_name(step)
        path.mkdir(parents=True)
        save_file({"w": np.zeros((100, 10), np.float32)}, path / stored.WEIGHTS)
        save_file({"w.momentum": np.zeros((100, 10), np.float32)}, path / stored.OPTIMIZER)
        (path / stored.STATE).write_text(json.dumps(state or {}))
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
            for file in path.iterdir()
        }
        weights = stored.weights_sha256(path / stored.WEIGHTS)
        manifest = {"step": step, "files": files, "weights_sha256": weights}
        (path / stored.MANIFEST).write_text(json.dumps(manifest))
        return path

    def text(self) -> str:
        return render(read_run(self.run.path))

    def phases(self) -> dict[str, list[str]]:
        """The words of each line of the table of phases, by its first one."""
        return {line.split()[0]: line.split() for line in self.text().split("\n\n")[1].splitlines()}

    def answer(self, key: str) -> str:
        found = {answer.key: answer for answer in answers(read_run(self.run.path))}
        return found[key].sentence

    def table(self) -> list[dict[str, str]]:
        file = io.StringIO()
        write_csv(self.run.path, file)
        return list(csv.DictReader(io.StringIO(file.getvalue())))


@pytest.fixture
def finished(tmp_path: Path) -> Writer:
    """30 steps in 40 s: 5 s start-up, 30 s of steps, evaluations, saves, 1 s shut-down."""
    run = Writer(tmp_path / "runs" / "a")
    run.launcher("launch", 1000.5, started=1000.0)
    run.begin(1005.0, 5.0)
    run.steps(1015.0, 10)
    run.score(1016.0, 10, 0.40)
    run.steps(
        1026.0,
        20,
        phases={"compute": 8.0, "input": 1.0, "network": 1.0, "evaluate": 1.0},
        seconds=11.0,
    )
    run.score(1027.0, 20, 0.60)
    run.rank("checkpoint", 1027.5, step=20, num_bytes=8000, write_seconds=0.25)
    run.steps(
        1038.0,
        30,
        phases={"compute": 8.0, "input": 1.0, "network": 1.0, "evaluate": 1.5, "checkpoint": 0.5},
        seconds=12.0,
    )
    run.score(1038.0, 30, 0.50)
    run.rank("checkpoint", 1038.5, step=30, num_bytes=8000, write_seconds=0.75)
    run.checkpoint(20)
    run.checkpoint(30)
    run.rank("end", 1039.0, step=30, reason="finished", seconds=1.0, phases={"checkpoint": 1.0})
    run.launcher("exit", 1040.0, code=0)
    return run


def test_the_first_lines_say_how_it_ended_and_how_long_it_took(finished: Writer) -> None:
    assert render(read_run(finished.run.path)).splitlines()[:3] == [
        f"{finished.run.path}: cifar10, finished at step 30 of 30",
        "took 40.0 s with 2 processes on cpu",
        "78.0 k parameters, 312.2 kB of gradients per step",
    ]


def test_the_phases_are_a_table_that_adds_up_to_the_wall_time(finished: Writer) -> None:
    rows = finished.phases()
    assert rows["start-up"][1:4] == ["5.0", "12.5", "%"]
    assert rows["compute"][1:4] == ["24.0", "60.0", "%"]
    assert rows["checkpoint"][1:4] == ["1.5", "3.8", "%"]
    assert rows["shut-down"][1:4] == ["1.0", "2.5", "%"]
    assert rows["in"] == ["in", "all", "40.0", "wall", "time", "40.0", "s"]
    assert "restart" not in rows and "unexplained" not in rows


def test_step_time_and_throughput_are_those_of_the_steps(finished: Writer) -> None:
    times = read_run(finished.run.path).step_times
    assert times is not None
    assert (times.num_steps, times.median_seconds, times.units_per_second) == (30, 1.0, 128.0)
    assert (
        "step: median 1.00 s (90 % between 1.00 s and 1.00 s); 128 images/s over the whole world"
        in finished.text()
    )


def test_the_last_and_the_best_score_are_told_apart(finished: Writer) -> None:
    text = finished.text()
    assert "scores: validation top-1 50.00 %, loss 1.2500 at step 30 [validation:200" in text
    assert "  best by top1: 60.00 % at step 20" in text


def test_scores_of_later_evaluations_are_shown(finished: Writer) -> None:
    events = EventFile(finished.run.evaluation_events, attempt=0)
    events.write("score", step=20, split="test", scores={"top1": 0.55}, signature="test:1")
    events.close()
    assert "test top-1 55.00 % at step 20 [test:1]" in finished.text()


def test_what_saving_cost_is_said_in_seconds_and_percent(finished: Writer) -> None:
    cost = read_run(finished.run.path).saving.cost
    assert (cost.num_saves, cost.stall_seconds, cost.background_seconds) == (2, 1.5, 1.0)
    text = finished.answer("checkpoint")
    assert (
        "2 saves: the loop stood still for 1.50 s in all (3.8 % of the wall time), 1.00 s of it "
        "after the last step, until the last one was written; a thread wrote for 1.00 s in all "
        "while training went on." in text
    )
    assert "On the way a save cost 0.25 s; from 2 saves, so this is rough." in text
    assert text.startswith("8.") and "weights.safetensors 4.1 kB" in text


def test_the_learning_rate_is_described_as_training_used_it(finished: Writer) -> None:
    assert finished.answer("rate").startswith(
        "One-cycle: rises for 20 % of the run, then falls in a straight line. It fell from 0.336 "
        "at step 10 to 0.016 at step 30."
    )


def test_machine_and_worker_settings_are_shown_when_known(finished: Writer) -> None:
    assert "machine:" not in finished.text()
    environment = {
        "host": "box",
        "num_cores": 2,
        "device_name": "a CPU",
        "threads": 1,
        "libraries": {"torch": "2.13.0"},
        "settings": {"OMP_NUM_THREADS": "1"},
    }
    write_file(finished.run.environment, json.dumps(environment))
    assert "machine: box, 2 cores, a CPU; torch 2.13.0, 1 thread per process" in finished.text()
    assert "set for the workers: OMP_NUM_THREADS=1" in finished.text()
    write_file(finished.run.environment, "{torn")
    assert "machine:" not in finished.text()


def test_warnings_are_repeated_and_failed_saves_counted(finished: Writer) -> None:
    words = "no space left in x: this checkpoint was not saved, earlier ones are intact"
    finished.rank("warning", 1030.0, step=25, text=words, failed_save=True)
    assert f"warning: {words}" in finished.text()
    assert "2 saves, 1 failed: " in finished.text()


def test_every_failed_save_is_counted_whatever_the_reason(finished: Writer) -> None:
    finished.rank("warning", 1030.0, step=25, text="Input/output error", failed_save=True)
    finished.rank("warning", 1031.0, step=26, text="something else was not saved")
    assert read_run(finished.run.path).saving.cost.num_failed == 1


def test_many_warnings_are_cut_and_counted(finished: Writer) -> None:
    for number in range(7):
        finished.rank("warning", 1030.0 + number, step=25, text=f"number {number}")
    text = finished.text()
    assert "3 earlier warnings in the run's event files" in text  # one is that rank 1 is missing
    assert "number 2\n" not in text and "warning: number 3" in text


def test_events_lost_on_a_full_disk_are_a_warning(finished: Writer) -> None:
    finished.rank("warning", 1030.0, step=25, text="words", num_lost=3)
    assert "warning: the disk was full: events that could not be written: 3" in finished.text()


def test_a_run_without_any_event_has_a_report(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a")
    facts = read_run(run.run.path)
    assert (facts.step, facts.step_times, facts.saving.newest) == (0, None, None)
    text = run.text()
    assert "running or killed at step 0 of 30" in text
    assert "no step was recorded yet" in text
    assert "scores:" not in text and "One-cycle: " in text
    assert "stood still" not in text


def test_one_save_is_one(killed: Writer) -> None:
    killed.rank("checkpoint", 1016.0, step=10, num_bytes=8000, write_seconds=0.25)
    assert "There is no complete checkpoint. 1 save: the loop" in killed.answer("checkpoint")
    killed.checkpoint(10)
    assert ". 1 save: the loop stood still for " in killed.answer("checkpoint")


def test_a_run_killed_before_its_first_step_is_all_start_up(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a")
    run.launcher("launch", 1000.5, started=1000.0)
    run.launcher("exit", 1004.0, code=1)
    rows = [line.split()[:4] for line in run.text().splitlines() if line.startswith("start-up")]
    assert rows == [["start-up", "4.0", "100.0", "%"]]


def short_run(folder: Path, seconds: list[float]) -> Writer:
    run = Writer(folder, f"steps={len(seconds)}")
    run.begin(1005.0, 5.0)
    run.steps(
        1005.0 + sum(seconds),
        len(seconds),
        num_steps=len(seconds),
        num_units=128 * len(seconds),
        seconds=sum(seconds),
        phases={"compute": sum(seconds)},
        step_seconds=seconds,
    )
    return run


@pytest.mark.parametrize("seconds", [[2.0], [2.0, 2.0], [2.0, 2.0, 2.0]])
def test_a_run_of_few_steps_has_step_times(tmp_path: Path, seconds: list[float]) -> None:
    run = short_run(tmp_path / "a", seconds)
    times = read_run(run.run.path).step_times
    assert times is not None and times.num_steps == len(seconds)
    assert times.low_seconds == times.median_seconds == times.high_seconds == 2.0
    assert times.units_per_second == 64.0
    assert f"finished at step {len(seconds)} of {len(seconds)}" in run.text()


@pytest.mark.parametrize("seconds", [[1.0, 10.0], [10.0, 1.0, 1.0], [1.0, 10.0, 10.0]])
def test_no_step_is_said_to_be_faster_or_slower_than_any_was(
    tmp_path: Path, seconds: list[float]
) -> None:
    times = read_run(short_run(tmp_path / "a", seconds).run.path).step_times
    assert times is not None
    assert times.low_seconds is not None and times.high_seconds is not None
    assert min(seconds) <= times.low_seconds <= times.high_seconds <= max(seconds)


def test_the_spread_of_many_steps_leaves_five_percent_on_each_side(tmp_path: Path) -> None:
    run = short_run(tmp_path / "a", [n / 1000 for n in range(1, 1001)])
    times = read_run(run.run.path).step_times
    assert times is not None
    assert times.low_seconds == pytest.approx(0.05, abs=0.002)
    assert times.high_seconds == pytest.approx(0.95, abs=0.002)


@pytest.fixture
def killed(tmp_path: Path) -> Writer:
    """Killed at 20 with a checkpoint at 10; the second attempt finished."""
    run = Writer(tmp_path / "a")
    run.launcher("launch", 1000.5, started=1000.0)
    run.begin(1005.0, 5.0)
    run.steps(1015.0, 10)
    run.score(1015.0, 10, 0.4)
    run.steps(1025.0, 20, loss=99.0)
    run.score(1025.0, 20, 0.9)
    return run


def go_on(run: Writer) -> None:
    run.launcher("launch", 2000.5, attempt=2, started=2000.0)
    run.begin(2005.0, 5.0, step=10, attempt=2)
    run.steps(2015.0, 20, attempt=2)
    run.score(2015.0, 20, 0.5, attempt=2)
    run.steps(2025.0, 30, attempt=2)
    run.rank("end", 2025.0, 2, step=30, reason="finished", seconds=0.0, phases={})
    run.launcher("exit", 2026.0, attempt=2, code=0)


def test_a_killed_run_says_so_and_where_it_is(killed: Writer) -> None:
    text = killed.text()
    assert "running or killed at step 20 of 30" in text
    assert "took 25.0 s with 2 processes" in text


def test_after_going_on_lost_work_is_a_phase_and_lost_scores_are_gone(killed: Writer) -> None:
    go_on(killed)
    text = killed.text()
    assert "finished at step 30 of 30" in text
    assert "took 51.0 s in 2 attempts with 2 processes on cpu" in text
    rows = killed.phases()
    assert rows["restart"][1] == "10.0" and rows["compute"][1] == "24.0"
    assert "best by top1: 50.00 % at step 20" in text and "90.00 %" not in text
    assert "wall time 51.0 s" in text


def test_a_stopped_run_says_so(killed: Writer) -> None:
    killed.rank("end", 1026.0, step=20, reason="stopped", seconds=1.0, phases={"checkpoint": 1.0})
    assert "stopped at step 20 of 30" in killed.text()


def test_an_old_end_does_not_count_for_a_run_that_goes_on(killed: Writer) -> None:
    killed.rank("end", 1026.0, step=20, reason="stopped", seconds=1.0, phases={"checkpoint": 1.0})
    killed.launcher("launch", 2000.5, attempt=2, started=2000.0)
    assert "running or killed at step 20 of 30" in killed.text()


def test_a_run_set_back_behind_an_earlier_beginning_is_where_it_is(killed: Writer) -> None:
    killed.begin(1105.0, 5.0, step=20, attempt=2)
    killed.begin(1205.0, 5.0, step=10, attempt=3)  # the checkpoint of 20 was damaged
    assert read_run(killed.run.path).step == 10


def test_a_run_whose_launcher_saw_it_fail_is_not_said_to_be_running(killed: Writer) -> None:
    killed.launcher("exit", 1026.0, code=1)
    assert "failed (exit code 1) at step 20 of 30" in killed.text().splitlines()[0]
    killed.rank("end", 1025.5, step=20, reason="failed", seconds=0.5, phases={"compute": 0.5})
    assert "failed (exit code 1) at step 20 of 30" in killed.text().splitlines()[0]


def test_a_lock_tells_whether_a_run_is_running_or_was_killed(killed: Writer) -> None:
    import fcntl

    with killed.run.lock.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert "cifar10, running at step 20 of 30" in killed.text()
    assert "cifar10, killed at step 20 of 30" in killed.text()


@pytest.mark.parametrize("what", ["manifest", "weights", "flip"])
def test_a_damaged_newest_checkpoint_does_not_stop_the_report(finished: Writer, what: str) -> None:
    newest = finished.run.checkpoints / stored.checkpoint_name(30)
    if what == "manifest":
        (newest / stored.MANIFEST).write_text("{")
    elif what == "weights":
        (newest / stored.WEIGHTS).unlink()
    else:
        content = bytearray((newest / stored.WEIGHTS).read_bytes())
        content[9] ^= 0x10
        (newest / stored.WEIGHTS).write_bytes(content)
    text = finished.text()
    assert "finished at step 30 of 30" in text
    assert finished.answer("checkpoint").startswith("8.")
    assert "warning: damaged checkpoint: " in text and newest.name in text


def test_when_every_checkpoint_is_damaged_the_report_still_says_the_rest(finished: Writer) -> None:
    for checkpoint in stored.all_checkpoints(finished.run.checkpoints):
        (checkpoint / stored.STATE).unlink()
    text = finished.text()
    assert text.count("warning: damaged checkpoint: ") == 2
    assert "There is no complete checkpoint. 2 saves: " in finished.answer("checkpoint")


def test_units_of_more_words_have_a_plural(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a")
    run.rank("begin", 1005.0, step=0, seconds=5.0, phases={"start-up": 5.0}, unit="target token")
    run.steps(1015.0, 10)
    assert "128 target tokens/s over the whole world" in run.text()


def test_the_scaled_peak_of_the_rate_is_named(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a", "schedule.scaling=linear", "schedule.reference_batch=64")
    assert "peak 0.8 (0.4 x 2 for the batch) at step 6 of 30" in run.answer("rate")
    alone = ["batch.global=null", "batch.per_device=32"]
    run = Writer(tmp_path / "b", "schedule.scaling=sqrt", "schedule.reference_batch=256", *alone)
    run.begin(1005.0, 5.0)
    assert "peak 0.2 (0.4 x 0.5 for the batch) at step 6 of 30" in run.answer("rate")


CARD = {
    "workload": "cifar10",
    "fingerprint": "abc",
    "total_mb": 184.4,
    "stand_in": None,
    "splits": {"train": {"num_pictures": 45000, "num_per_class": {}}, "test": {"num_pictures": 10}},
    "arrays": {
        "train-images.npy": {"bytes": 138_285_000},
        "test-images.npy": {"bytes": 46_000_000},
    },
}


def test_the_data_is_described_where_it_is_found(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a", f"data={tmp_path}/pictures")
    assert run.answer("data").startswith("Not known here: ")
    write_file(tmp_path / "pictures" / "card.json", json.dumps(CARD))
    assert run.answer("data") == (
        "45,000 pictures for training, 138.3 MB as stored. There are also 10 test pictures; all "
        "splits together are stored in 184.4 MB."
    )
    write_file(tmp_path / "pictures" / "card.json", json.dumps({**CARD, "stand_in": {"seed": 1}}))
    assert run.answer("data").startswith("A stand-in that Paceline made. 45,000 pictures")


def test_the_size_of_the_training_set_is_that_of_the_training_split_as_it_was_given(
    tmp_path: Path,
) -> None:
    given = {
        "bytes": 9_000_000,
        "form": "text",
        "num_lines": 60_000,
        "bytes_by_part": {"en": 4_000_000, "de": 5_000_000},
    }
    train = {"num_pairs": 59_990, "stored_bytes": 7_000_000, "given": given}
    card = {**CARD, "total_mb": 12.5, "splits": {"train": train, "test": {"num_pairs": 200}}}
    run = Writer(tmp_path / "a", f"data={tmp_path}/text")
    write_file(tmp_path / "text" / "card.json", json.dumps(card))
    assert run.answer("data") == (
        "9.0 MB of text (4.0 MB en and 5.0 MB de) in 60,000 lines on each side for training, "
        "59,990 pairs, stored in 7.0 MB. There are also 200 test pairs; all splits together are "
        "stored in 12.5 MB."
    )


def test_an_older_card_of_text_tells_megabytes_and_lines_by_corpus(tmp_path: Path) -> None:
    corpora = [
        {"name": "a", "split": "train", "text_mb": 6.0, "num_lines": 40_000},
        {"name": "b", "split": "train", "text_mb": 3.5, "num_lines": 20_000},
        {"name": "c", "split": "test", "text_mb": 0.5},
    ]
    arrays = {"train.source.tokens.npy": {"bytes": 3_000_000}, "test.source.txt": {"bytes": 9}}
    card = {**CARD, "corpora": corpora, "arrays": arrays}
    run = Writer(tmp_path / "a", f"data={tmp_path}/text")
    write_file(tmp_path / "text" / "card.json", json.dumps(card))
    text = run.answer("data")
    assert text.startswith("9.5 MB of text in 60,000 lines on each side for training, 45,000 ")
    assert "stored in 3.0 MB" in text


@pytest.mark.parametrize(
    "change",
    [
        {"splits": 3},
        {"splits": {}},
        {"splits": {"train": {}}},
        {"total_mb": "many"},
        {"splits": {"train": None}},
        {"workload": 3},
    ],
)
def test_a_card_that_says_something_else_is_left_out(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    run = Writer(tmp_path / "a", f"data={tmp_path}/pictures")
    write_file(tmp_path / "pictures" / "card.json", json.dumps({**CARD, **change}))
    assert run.answer("data").startswith("Not known here: ")


def test_data_that_was_prepared_anew_since_is_told_apart(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a", f"data={tmp_path}/pictures")
    write_file(tmp_path / "pictures" / "card.json", json.dumps(CARD))
    run.checkpoint(10, {"progress": {"data_fingerprint": "abc"}})
    assert "prepared again" not in run.answer("data")
    run.checkpoint(20, {"progress": {"data_fingerprint": "xyz"}})
    assert "prepared again" in run.answer("data")


def test_what_is_no_run_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        read_run(tmp_path)
    with pytest.raises(UserError, match="not a run directory"):
        write_csv(tmp_path, io.StringIO())


# ---- the table


def test_the_table_has_a_row_per_line_with_scores_at_their_step(finished: Writer) -> None:
    rows = finished.table()
    assert list(rows[0]) == [
        "step",
        "epochs",
        "loss",
        "rate",
        "units_per_second",
        "seconds",
        "gradient_norm",
        "validation_top1",
        "validation_loss",
    ]
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert [row["loss"] for row in rows] == ["2.0", "1.5", "1.0"]
    assert [row["validation_top1"] for row in rows] == ["0.4", "0.6", "0.5"]
    assert rows[0]["units_per_second"] == "128.0"


def test_the_table_has_no_lost_and_no_doubled_steps(killed: Writer) -> None:
    go_on(killed)
    rows = killed.table()
    assert [row["step"] for row in rows] == ["10", "20", "30"]
    assert "99.0" not in [row["loss"] for row in rows]
    assert rows[1]["validation_top1"] == "0.5" and rows[2]["validation_top1"] == ""


def test_a_score_between_two_lines_has_a_row_of_its_own(finished: Writer) -> None:
    finished.score(1028.0, 25, 0.7)
    rows = finished.table()
    assert [row["step"] for row in rows] == ["10", "20", "25", "30"]
    assert (rows[2]["loss"], rows[2]["validation_top1"]) == ("", "0.7")


def test_the_table_of_an_empty_run_is_its_heading(tmp_path: Path) -> None:
    run = Writer(tmp_path / "a")
    assert run.table() == []


def test_a_torn_last_line_is_not_in_the_table(finished: Writer) -> None:
    path = finished.run.rank_events(0)
    path.write_bytes(path.read_bytes() + b'{"kind": "steps", "attempt": 1, "step": 31, "lo')
    assert [row["step"] for row in finished.table()] == ["10", "20", "30"]


def test_lines_of_the_table_end_as_other_tools_expect(finished: Writer) -> None:
    file = io.StringIO(newline="")
    write_csv(finished.run.path, file)
    assert "\r" not in file.getvalue()
