"""Every reader of a printed log, of a table and of a store: whatever is cut, doubled, shuffled,
interleaved or stored in another way, there is no traceback, and lines that survive say the same."""

import gzip
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paceline.errors import UserError
from paceline.report.foreign import ForeignRun, read_foreign
from paceline.report.foreign.counters.beside import counters_of
from paceline.report.foreign.counters.counters import DEVICE, DEVICE_MEMORY, POWER
from tests.log_answers import answers_of
from tests.long_logs import LONG_LOGS
from tests.test_foreign_counters import gpu_table, metric, nmon_file
from tests.test_foreign_stores import mlflow_run, trackio_project, wandb_run

BUDGET = settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""The same examples every time, few of each: there are twenty readers."""
LINES = {name: list(make()) for name, make in LONG_LOGS.items()}
COUNTED = {"hugging face"}
"""Without the lines before training the step of a line cannot be known: lines are counted, which
a note says."""
HEADED = {"Keras"}
"""A heading and a bar say one thing together: a line lost may take another with it."""


def joined(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def told_of(path: Path, content: bytes) -> ForeignRun | None:
    """None where the log is refused in one clear message."""
    path.write_bytes(content)
    try:
        run = read_foreign(path)
    except UserError:
        return None
    assert answers_of(run, link=1e9)
    return run


@lru_cache
def whole_of(name: str) -> ForeignRun:
    with TemporaryDirectory() as directory:
        run = told_of(Path(directory) / "whole.log", joined(LINES[name]))
    assert run is not None
    return run


def losses(run: ForeignRun) -> dict[int, float]:
    return dict(run.training_loss.points)


def assert_nothing_new(run: ForeignRun | None, whole: ForeignRun, name: str) -> None:
    """Each loss that is told is one of the whole log's, at its step."""
    if run is None or run.tool != whole.tool:
        return
    true = losses(whole)
    if any("names no steps" in note or "may be another" in note for note in run.notes):
        assert set(losses(run).values()) <= set(true.values())
        return
    for step, value in losses(run).items():
        assert true.get(step) == value, step


def assert_same_pace(run: ForeignRun, whole: ForeignRun, tolerance: float) -> None:
    mean, true = run.step_times.mean_seconds, whole.step_times.mean_seconds
    assert (mean is None) == (true is None)
    if mean is not None and true is not None:
        assert mean == pytest.approx(true, rel=tolerance)


@pytest.mark.parametrize("name", LONG_LOGS)
def test_the_long_log_of_every_tool_is_read_as_it_stands(name: str) -> None:
    run = whole_of(name)
    assert len(losses(run)) == 40
    assert not any("runs here" in note for note in run.notes)


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(data=st.data())
def test_a_cut_log_tells_nothing_that_the_whole_does_not(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, content = whole_of(name), joined(LINES[name])
    first = data.draw(st.integers(0, len(content)))
    last = data.draw(st.integers(first, len(content)))
    assert_nothing_new(told_of(tmp_path / "cut.log", content[first:last]), whole, name)


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(data=st.data())
def test_lost_lines_take_only_their_own_figures_with_them(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, lines = whole_of(name), LINES[name]
    lost = data.draw(st.sets(st.integers(6, len(lines) - 2), max_size=8))
    kept = [line for n, line in enumerate(lines) if n not in lost]
    run = told_of(tmp_path / "lost.log", joined(kept))
    assert run is not None
    if name not in COUNTED:
        assert_nothing_new(run, whole, name)
    most = 2 * len(lost) if name in HEADED else len(lost)
    assert len(losses(run)) >= len(losses(whole)) - most
    assert_same_pace(run, whole, 0.05)


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(data=st.data())
def test_lines_that_are_there_twice_count_once(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    whole, lines = whole_of(name), LINES[name]
    twice = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=10))
    doubled = [line for n, line in enumerate(lines) for _ in range(2 if n in twice else 1)]
    run = told_of(tmp_path / "twice.log", joined(doubled))
    assert run is not None
    assert (run.step, run.world) == (whole.step, whole.world)
    if name not in COUNTED:
        assert losses(run) == losses(whole)
    assert_same_pace(run, whole, 0.01)


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(order=st.randoms(use_true_random=False))
def test_shuffled_logs_never_give_a_traceback(tmp_path: Path, name: str, order: Any) -> None:
    lines = list(LINES[name])
    order.shuffle(lines)
    told_of(tmp_path / "shuffled.log", joined(lines))


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(order=st.randoms(use_true_random=False), num_ranks=st.integers(2, 4))
def test_interleaved_ranks_are_told_apart_by_their_prefix(
    tmp_path: Path, name: str, order: Any, num_ranks: int
) -> None:
    whole, lines = whole_of(name), LINES[name]
    left = {rank: iter(lines) for rank in range(num_ranks)}
    turns = [rank for rank in range(num_ranks) for _ in lines]
    order.shuffle(turns)
    run = told_of(tmp_path / "ranks.log", joined(f"[rank{r}]:{next(left[r])}" for r in turns))
    assert run is not None
    assert run.step == whole.step
    assert losses(run) == losses(whole)
    assert_same_pace(run, whole, 1e-6)


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    is_packed=st.booleans(),
)
def test_how_a_log_is_stored_changes_nothing(
    tmp_path: Path, name: str, encoding: str, end: str, is_packed: bool
) -> None:
    whole = whole_of(name)
    content = (end.join(LINES[name]) + end).encode(encoding)
    run = told_of(tmp_path / "other.log", gzip.compress(content) if is_packed else content)
    assert run is not None
    assert losses(run) == losses(whole)
    assert run.step_times.total_seconds == whole.step_times.total_seconds


@pytest.mark.parametrize("name", LONG_LOGS)
@BUDGET
@given(data=st.data())
def test_damaged_bytes_never_give_a_traceback(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    content = bytearray(joined(LINES[name]))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=60)):
        content[place] = data.draw(st.integers(0, 255))
    told_of(tmp_path / "damaged.log", bytes(content))


TABLE = ["step,train_loss,val_loss", *(f"{10 * n},{9 - n / 10},{n}" for n in range(1, 41))]
HISTORY = [{"loss": 9 - n / 10, "step": 10 * n, "epoch": n / 10} for n in range(1, 41)]
STATE = json.dumps({"log_history": HISTORY, "max_steps": 400, "global_step": 400})
CELL = {"cell_type": "code", "source": [], "outputs": [{"text": LINES["unknown"]}]}
FILES = {
    "metrics.csv": joined(TABLE),
    "trainer_state.json": STATE.encode(),
    "notebook.ipynb": json.dumps({"cells": [CELL]}).encode(),
}


@pytest.mark.parametrize("name", FILES)
@BUDGET
@given(data=st.data())
def test_files_that_hold_a_run_survive_being_cut_and_damaged(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    path, whole = tmp_path / name, FILES[name]
    run = told_of(path, whole[: data.draw(st.integers(1, len(whole)))])
    if run is not None and name == "metrics.csv":
        assert losses(run).items() <= {10 * n: 9 - n / 10 for n in range(1, 41)}.items()
    told_of(path, damaged(whole, data))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The one file of each that holds its curves."""
    directory = tmp_path_factory.mktemp("stores")
    wandb, trackio = wandb_run(directory, 50) / "run-abc.wandb", trackio_project(directory)
    return {wandb.name: wandb.read_bytes(), trackio.name: trackio.read_bytes()}


@pytest.mark.parametrize("name", ["run-abc.wandb", "project.db"])
@BUDGET
@given(data=st.data())
def test_a_store_survives_being_cut_and_damaged(
    tmp_path: Path, stores: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    path, whole = tmp_path / name, stores[name]
    told_of(path, whole[: data.draw(st.integers(1, len(whole)))])
    told_of(path, damaged(whole, data))


def damaged(content: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(content)
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=40)):
        changed[place] = data.draw(st.integers(0, 255))
    return bytes(changed)


@BUDGET
@given(data=st.data())
def test_mlflows_store_tells_nothing_that_its_whole_lines_do_not(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("mlflow")
    run = mlflow_run(directory)
    true = losses(read_foreign(directory))
    curve, about = run / "metrics" / "train_loss", run / "meta.yaml"
    lines = curve.read_text().splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines), min_size=2, unique=True))
    cut = data.draw(st.integers(0, len(kept[-1]) - 1))
    curve.write_text("\n".join([*kept[:-1], kept[-1][:cut]]))
    found = read_foreign(directory)
    assert losses(found).items() <= true.items()
    about.write_bytes(damaged(about.read_bytes(), data))
    curve.write_bytes(damaged(curve.read_bytes(), data))
    with suppress(UserError):
        read_foreign(directory)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("watched")
    cloudwatch = json.dumps(metric({"Sum": 6e9}, 1), indent=1).encode()
    files = [gpu_table(directory), nmon_file(directory)]
    return {file.name: file.read_bytes() for file in files} | {"net.json": cloudwatch}


def counted(path: Path, content: bytes) -> dict[str, set[float]]:
    """All values of each kind that was counted."""
    path.write_bytes(content)
    try:
        found = counters_of(path)
    except UserError:
        return {}
    return {kind: {value for _, value in s} for one in found for kind, s in one.samples.items()}


@pytest.mark.parametrize("name", ["gpu.csv", "node1.nmon"])
@BUDGET
@given(data=st.data())
def test_counters_count_only_what_survives(
    tmp_path: Path, watched: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    """Of two devices at 80 % and 90 % one may be lost, so that the other stands for both."""
    lines = [line for line in watched[name].decode().splitlines() if ", 0 %," not in line]
    whole = counted(tmp_path / name, joined(lines))
    single = {DEVICE: {0.8, 0.9}, POWER: {250.0}, DEVICE_MEMORY: {1000.0 * 2**20}}
    head, rows = lines[:5], lines[5:]
    often = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    kept = [row for row, times in zip(rows, often, strict=True) for _ in range(times)]
    content = joined([*head, *kept])
    cut = content[: data.draw(st.integers(0, len(content)))]
    for left in (content, cut):
        for kind, values in counted(tmp_path / name, left).items():
            assert values <= whole[kind] | single.get(kind, set())


@pytest.mark.parametrize("name", ["gpu.csv", "node1.nmon", "net.json"])
@BUDGET
@given(data=st.data())
def test_counters_survive_being_cut_and_damaged(
    tmp_path: Path, watched: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    whole = watched[name]
    counted(tmp_path / name, whole[: data.draw(st.integers(0, len(whole)))])
    counted(tmp_path / name, damaged(whole, data))
