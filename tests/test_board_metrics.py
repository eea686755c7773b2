"""`/metrics` of the board, read by the parser of Prometheus's own client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from paceline.board.metrics import render_metrics
from paceline.watch.live import open_run
from tests.growing_run import GrowingRun
from tests.stored_runs import StoredRun, plateaued
from tests.test_board import ask, served

Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingRun]:
    run = GrowingRun(tmp_path / "run")
    run.begin()
    yield run
    run.close()


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def metrics_of(path: Path) -> Samples:
    return parsed(render_metrics(open_run(path)))


def test_a_run_of_several_hosts_is_read_by_prometheus(tmp_path: Path) -> None:
    run = plateaued(tmp_path / "a")
    found = metrics_of(run.path)
    assert found["paceline_step"] == [({}, run.step)]
    assert found["paceline_steps_wanted"] == [({}, run.loaded.steps)]
    about, _ = found["paceline_run_info"][0]
    assert about["run"] == "a" and about["state"] == "finished"
    shares: dict[str, float] = {}
    for labels, value in found["paceline_phase_ratio"]:
        shares[labels["rank"]] = shares.get(labels["rank"], 0.0) + value
    assert shares == pytest.approx(dict.fromkeys("0123", 1.0))
    assert {labels["host"] for labels, _ in found["paceline_host_cpu_ratio"]} == {"one", "two"}
    rates = dict((labels["host"], v) for labels, v in found["paceline_host_sent_bytes_per_second"])
    assert rates["one"] > 0
    scored = [labels for labels, _ in found["paceline_score"]]
    assert {"split": "validation", "score": "top1"} in scored


def test_the_board_serves_what_the_run_says_now(growing: GrowingRun) -> None:
    growing.steps(2)
    with served(growing.path) as board:
        response, body = ask(board, "/metrics")
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        first = parsed(body.decode())
        assert first["paceline_step"] == [({}, growing.step)]
        assert ask(board, "/metrics", host="evil.example")[0].status == 403
        assert ask(board, "/metrics", method="HEAD")[1] == b""


def test_a_run_that_says_nothing_yet_has_metrics(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "a", [{"compute": 0.1}])
    found = metrics_of(run.path)
    assert found["paceline_step"] == [({}, 0)]
    assert "paceline_loss" not in found


def test_names_cannot_break_the_format(tmp_path: Path) -> None:
    strange = 'a"b\\c\nd\x1be'
    run = StoredRun(tmp_path / "a", [{"compute": 0.1}], hosts=[strange])
    run.begin()
    run.train(20)
    found = metrics_of(run.path)
    host = found["paceline_rank_step"][0][0]["host"]
    assert host.startswith('a"b\\c') and "\x1b" not in host


def test_a_loss_that_is_not_a_number_is_left_out(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "a", [{"compute": 0.1}])
    run.begin()
    run.train(20, lambda _step: float("nan"))
    found = metrics_of(run.path)
    assert "paceline_loss" not in found
    assert found["paceline_step"] == [({}, 20)]
