"""Logs of other tools and own runs side by side: `paceline report one.log two.log`."""

import json
from pathlib import Path

import pytest

from paceline.report.comparison import Comparison, compare
from paceline.report.facts.facts import Facts, Options
from paceline.report.foreign import read_log
from paceline.report.own.run import read_run
from paceline.report.report import open_report
from tests import stored_runs
from tests.test_foreign_text import imagenet_log, seq2seq_log, written

Case = tuple[int, int, int, float, float]
"""Loader workers of a process, processes, batches of an epoch, seconds of a step and its wait."""
ONE_HOST: Case = (1, 1, 1252, 6.78, 6.20)
TWO_HOSTS: Case = (2, 2, 626, 3.69, 3.00)


def log(path: Path, case: Case, epochs: int = 2) -> Path:
    """Two epochs: 2 x 1,252 steps of 6.78 s are 4 h 42 min 57 s, 2 x 626 of 3.69 s 1 h 17 min."""
    workers, world, batches, time, data = case
    lines = [
        f"Namespace(arch='resnet18', batch_size=1024, epochs={epochs}, workers={workers}, "
        f"world_size={world})"
    ]
    for epoch in range(epochs):
        for index in [*range(0, batches, 50), batches - 1]:
            lines.append(
                f"Epoch: [{epoch}][{index:4d}/{batches}]\tTime {time:6.3f} ({time:6.3f})\t"
                f"Data {data:6.3f} ({data:6.3f})\tLoss {7 - epoch - index / batches:.4e} (4.0e+00)"
            )
        lines.append(f" * Acc@1 {40 + epoch:.3f} Acc@5 70.000")
    return written(path.parent, "\n".join(lines) + "\n", path.name)


def facts_of(path: Path) -> Facts:
    return read_log(path, Options())


def rows_of(compared: Comparison) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in compared.table}


def test_a_second_machine_is_not_credited_with_what_more_loader_workers_did(tmp_path: Path) -> None:
    one, two = log(tmp_path / "one.log", ONE_HOST), log(tmp_path / "two.log", TWO_HOSTS)
    compared = compare([facts_of(one), facts_of(two)])
    rows = rows_of(compared)
    assert rows["wall time"] == ["4 h 42 min", "1 h 17 min"]
    assert rows["mean step"] == ["6.78 s", "3.69 s"]
    assert rows["waiting for input"] == ["91 %", "81 %"]
    assert rows["loader workers"] == ["1", "2"]
    assert rows["processes"] == ["1", "2"]
    assert rows["global batch"] == ["1,024", "2,048"]
    # 1,024 / 6.78 and 2,048 / 3.69; of 1 and of 2 x 2 workers.
    assert rows["samples/s"] == ["151", "555"]
    told = " ".join(compared.sentences)
    assert "trained 3.67 times as many samples a second" in told
    assert "more than perfect scaling, which is not believed" in told
    assert "more loader workers and not another machine made" in told
    assert "it had 4 loader workers instead of 1 (151 and 138.8 samples a second for each)" in told
    assert "loader workers (1 to 2)" in told
    assert "yes, because" not in " ".join(compared.opening)


def test_logs_that_do_not_wait_for_input_are_not_explained_by_loaders(tmp_path: Path) -> None:
    one = log(tmp_path / "one.log", (4, 1, 1252, 1.0, 0.01))
    two = log(tmp_path / "two.log", (4, 2, 626, 1.1, 0.01))
    compared = compare([facts_of(one), facts_of(two)])
    told = " ".join(compared.sentences)
    # 2 x 1,024 in 1.1 s against 1,024 in 1 s: 1.82 times, 91 % of 2.
    assert "1.82 times as many samples a second" in told
    assert "a scaling efficiency of 91 % per process" in told
    assert "loader sets the pace" not in told


def test_three_logs_make_a_scaling_curve_in_every_form(tmp_path: Path) -> None:
    paths = [
        log(tmp_path / f"{world}.log", (4, world, 1252 // world, 1.0 + 0.1 * (world > 1), 0.01))
        for world in (4, 1, 2)
    ]
    compared = compare([facts_of(path) for path in paths])
    assert [point.num_processes for point in compared.scaling] == [1, 2, 4]
    # Each step takes 1.1 s instead of 1 s, on 2 and 4 times the batch.
    assert [point.speed_up for point in compared.scaling] == pytest.approx([1, 2 / 1.1, 4 / 1.1])
    assert [point.efficiency for point in compared.scaling] == pytest.approx([1, 1 / 1.1, 1 / 1.1])
    report = open_report(paths, Options())
    assert "a scaling efficiency of 91 %" in report.text()
    assert "efficiency" in report.markdown()
    assert "Scaling" in report.html()
    assert "perfect" in report.html()
    assert len(json.loads(report.json())["scaling"]) == 3


def test_more_than_perfect_scaling_is_marked_in_the_curve(tmp_path: Path) -> None:
    paths = [
        log(tmp_path / "one.log", ONE_HOST),
        log(tmp_path / "two.log", TWO_HOSTS),
        log(tmp_path / "four.log", (4, 4, 313, 1.9, 1.2)),
    ]
    text = open_report(paths, Options()).text()
    assert text.count("more than perfect: not believed") == 2


def test_a_log_and_an_own_run_are_compared_by_samples(tmp_path: Path) -> None:
    own = stored_runs.one_of_a_pair(tmp_path / "own", 1)
    path = log(tmp_path / "one.log", ONE_HOST)
    compared = compare([facts_of(path), read_run(own.path)])
    rows = rows_of(compared)
    assert rows["samples/s"][0] == "151"
    assert rows["global batch"] == ["1,024", "128"]
    report = open_report([path, own.path], Options())
    for form in (report.text, report.html, report.markdown, report.json):
        assert form()


def test_logs_that_do_not_tell_how_many_trained_are_not_said_to_scale(tmp_path: Path) -> None:
    one = written(tmp_path, imagenet_log(), "one.log")
    two = written(tmp_path, imagenet_log(time=0.5, data=0.45), "two.log")
    compared = compare([facts_of(one), facts_of(two)])
    told = " ".join(compared.sentences)
    assert rows_of(compared)["processes"] == ["-", "-"]
    assert rows_of(compared)["host-hours"] == ["-", "-"]
    assert "2.00 times as many epochs an hour" in told
    assert "if both epochs are of the same data" in told
    assert "how many processes trained is not in the log" in told
    assert "efficiency" not in told


def test_logs_of_different_tools_are_compared_with_what_is_known(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, imagenet_log(), "one.log"),
        written(tmp_path, seq2seq_log(), "two.log"),
    ]
    told = " ".join(compare([facts_of(path) for path in paths]).sentences)
    assert "a step of the one may be more work than a step of the other" in told


def test_what_logs_print_of_their_settings_is_among_the_differences(tmp_path: Path) -> None:
    one = written(tmp_path, seq2seq_log(), "one.log")
    text = (
        seq2seq_log()
        .replace("'mixed'", "'float'")
        .replace("'batch_size_per_gpu': 256", "'batch_size_per_gpu': 128")
    )
    two = written(tmp_path, text, "two.log")
    told = " ".join(compare([facts_of(one), facts_of(two)]).sentences)
    assert "precision (mixed to float)" in told
    assert "batch of a process (256 to 128)" in told
