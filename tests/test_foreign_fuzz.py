"""Logs that were cut, doubled, shuffled, interleaved or stored in another way: never a traceback,
and what the lines that survived say does not change."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paceline.errors import UserError
from paceline.report.facts.facts import Options
from paceline.report.foreign import ForeignRun, read_foreign
from paceline.report.report import open_report
from tests.test_foreign_events import Row, name_of, training, write_rows
from tests.test_foreign_text import imagenet_log, seq2seq_log

BUDGET = settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""The same examples every time: a failure is there again when the test is run again."""


def distinct(text: str) -> str:
    """Times that no two lines share, so that it shows where a line got to."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        time, mean = 1 + number / 1000, 1 + number / 2000
        lines.append(line.replace("Time  1.000 ( 1.000)", f"Time {time:6.3f} ({mean:6.3f})"))
    return "\n".join(lines) + "\n"


TEXTS: dict[str, Callable[[], str]] = {
    "imagenet": lambda: distinct(imagenet_log(3)),
    "openseq2seq": lambda: seq2seq_log(7500),
}
LINES = {name: make().splitlines() for name, make in TEXTS.items()}


def report_of(path: Path, content: bytes) -> ForeignRun | None:
    """Every form of the report is made; None where the log is refused in one clear message."""
    path.write_bytes(content)
    try:
        report = open_report([path], Options(1e9, 1.0))
        assert report.text()
        assert report.html()
        assert report.json()
        return read_foreign(path)
    except UserError:
        return None


def points_of(run: ForeignRun) -> dict[str, dict[int, float]]:
    curves = {
        "loss": run.training_loss,
        "time": run.step_times.curve,
        **{f"score {name}": curve for name, curve in run.scores.items()},
    }
    return {name: dict(curve.points) for name, curve in curves.items()}


def truth(tmp_path: Path, name: str) -> ForeignRun:
    run = report_of(tmp_path / "whole.log", TEXTS[name]().encode())
    assert run is not None
    return run


def assert_nothing_new(run: ForeignRun | None, whole: ForeignRun, kinds: tuple[str, ...]) -> None:
    """Each point that is told is one of the whole log's."""
    if run is None:
        return
    told, true = points_of(run), points_of(whole)
    for kind in kinds:
        for step, value in told[kind].items():
            assert true[kind].get(step) == value, (kind, step)


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(data=st.data())
def test_a_cut_log_tells_nothing_that_the_whole_does_not(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, content = truth(tmp_path, name), TEXTS[name]().encode()
    first = data.draw(st.integers(0, len(content)))
    last = data.draw(st.integers(first, len(content)))
    run = report_of(tmp_path / "cut.log", content[first:last])
    assert_nothing_new(run, whole, ("loss", "time"))
    if run is not None and run.step_times.mean_seconds and name == "openseq2seq":
        assert run.step_times.mean_seconds == pytest.approx(36.0)


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(data=st.data())
def test_lines_that_are_lost_take_only_their_own_figures_with_them(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, lines = truth(tmp_path, name), LINES[name]
    lost = data.draw(st.sets(st.integers(len(lines) // 3, len(lines) - 1), max_size=20))
    kept = [line for n, line in enumerate(lines) if n not in lost]
    run = report_of(tmp_path / "lost.log", ("\n".join(kept) + "\n").encode())
    assert run is not None
    assert run.world == whole.world
    assert_nothing_new(run, whole, ("loss", "time") if name == "imagenet" else ("loss",))
    assert points_of(run)["loss"].keys() >= points_of(whole)["loss"].keys() - _steps_in(
        [lines[n] for n in lost], name
    )


def _steps_in(lines: list[str], name: str) -> set[int]:
    text = "\n".join([*LINES[name][:1], *lines])
    found = set()
    for line in text.splitlines():
        if name == "imagenet" and line.startswith("Epoch: ["):
            epoch, index = line.split("[")[1].split("]")[0], line.split("[")[2].split("/")[0]
            found.add(100 * int(epoch) + int(index) + 1)
        elif line.startswith("*** Global step "):
            found.add(int(line.split()[3].rstrip(":")))
    return found


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(data=st.data())
def test_lines_that_are_there_twice_count_once(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, lines = truth(tmp_path, name), LINES[name]
    begin = next(n for n, line in enumerate(lines) if line.startswith(("Epoch", "*** Global")))
    twice = data.draw(st.sets(st.integers(begin, len(lines) - 1)))
    doubled = [line for n, line in enumerate(lines) for _ in range(2 if n in twice else 1)]
    run = report_of(tmp_path / "twice.log", ("\n".join(doubled) + "\n").encode())
    assert run is not None
    assert run.world == whole.world
    assert run.step_times.total_seconds == pytest.approx(whole.step_times.total_seconds)
    assert points_of(run) == points_of(whole)


@BUDGET
@given(order=st.randoms(use_true_random=False))
def test_progress_lines_out_of_order_say_the_same(tmp_path: Path, order: Any) -> None:
    whole = truth(tmp_path, "imagenet")
    first, *rest = [line for line in LINES["imagenet"] if line.startswith("Epoch")]
    late = sorted(range(len(rest)), key=lambda n: n + order.uniform(0, 8))
    lines = [first, *(rest[n] for n in late)]
    run = report_of(tmp_path / "shuffled.log", ("\n".join(lines) + "\n").encode())
    assert run is not None
    assert (run.world, run.step) == (None, 291)
    assert points_of(run)["loss"] == points_of(whole)["loss"]
    assert run.step_times.total_seconds == pytest.approx(whole.step_times.total_seconds)


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(order=st.randoms(use_true_random=False))
def test_shuffled_logs_never_give_a_traceback(tmp_path: Path, name: str, order: Any) -> None:
    lines = list(LINES[name])
    order.shuffle(lines)
    report_of(tmp_path / "shuffled.log", ("\n".join(lines) + "\n").encode())


@BUDGET
@given(order=st.randoms(use_true_random=False), num_ranks=st.integers(2, 5))
def test_interleaved_ranks_are_told_apart_by_their_prefix(
    tmp_path: Path, order: Any, num_ranks: int
) -> None:
    whole = truth(tmp_path, "imagenet")
    waits = [0.1 * (rank + 1) for rank in range(num_ranks)]
    each = [
        [
            line.replace("Data  0.900 ( 0.900)", f"Data {w:6.3f} ({w:6.3f})")
            for line in LINES["imagenet"]
        ]
        for w in waits
    ]
    turns = [rank for rank in range(num_ranks) for _ in LINES["imagenet"]]
    order.shuffle(turns)
    lines = [f"{rank}: {each[rank].pop(0)}" for rank in turns]
    run = report_of(tmp_path / "ranks.log", ("\n".join(lines) + "\n").encode())
    assert run is not None
    assert run.world == num_ranks
    assert points_of(run)["loss"] == points_of(whole)["loss"]
    assert run.step_times.total_seconds == pytest.approx(whole.step_times.total_seconds)
    assert max(rank.input_share or 0 for rank in run.ranks) == pytest.approx(
        run.step_times.input_share
    )


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    is_packed=st.booleans(),
    colour=st.sampled_from(["", "\x1b[32m", "\x1b[1;31m"]),
)
def test_how_a_log_is_stored_changes_nothing(
    tmp_path: Path, name: str, encoding: str, end: str, is_packed: bool, colour: str
) -> None:
    whole = truth(tmp_path, name)
    text = end.join(f"{colour}{line}" for line in LINES[name]) + end
    content = text.encode(encoding, errors="replace")
    run = report_of(tmp_path / "other.log", gzip.compress(content) if is_packed else content)
    assert run is not None
    assert points_of(run) == points_of(whole)
    assert run.step_times.total_seconds == whole.step_times.total_seconds


@pytest.mark.parametrize("name", TEXTS)
@BUDGET
@given(data=st.data())
def test_bytes_that_were_damaged_never_give_a_traceback(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    content = bytearray(TEXTS[name]().encode())
    places = data.draw(st.lists(st.integers(0, len(content) - 1), max_size=60))
    for place in places:
        content[place] = data.draw(st.integers(0, 255))
    report_of(tmp_path / "damaged.log", bytes(content))


def event_rows() -> list[Row]:
    rows: list[Row] = [*training()]
    for step in range(10, 101, 10):
        rows += [("val/loss", step, 2.0 * step, 4 - step / 100), ("lr", step, 2.0 * step, 0.1)]
        rows += [("val/acc1", step, 2.0 * step, 10.0 + step), ("data_time", step, 2.0 * step, 0.5)]
    return rows


@BUDGET
@given(data=st.data())
def test_event_files_that_were_cut_or_damaged_tell_nothing_new(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = write_rows(tmp_path / name_of(), event_rows())
    content = bytearray(path.read_bytes())
    whole = read_foreign(path)
    del content[data.draw(st.integers(1, len(content))) :]
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5)):
        content[place] ^= data.draw(st.integers(1, 255))
    run = report_of(tmp_path / "cut", bytes(content))
    assert_nothing_new(run, whole, ("loss",))


@BUDGET
@given(order=st.randoms(use_true_random=False))
def test_event_files_out_of_order_never_give_a_traceback(tmp_path: Path, order: Any) -> None:
    rows = event_rows()
    order.shuffle(rows)
    path = write_rows(tmp_path / name_of(), rows)
    assert open_report([path], Options()).text()
