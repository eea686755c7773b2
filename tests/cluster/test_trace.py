"""The trace of a run on several hosts: one clock for all, and Perfetto itself opens it."""

import json
import shutil
from pathlib import Path

import pytest

from paceline.record.schema import RunDirectory
from paceline.report.trace.trace import write_trace
from tests.browser import find_browser
from tests.cluster.remote_run import Start
from tests.perfetto import Perfetto, open_in_perfetto
from tests.test_report_trace import change_events
from tests.trace_format import open_trace

pytestmark = pytest.mark.cluster

NUM_STEPS = 60
FAR_AHEAD = 10.0
LEAST_SECONDS = 1e-3

_ENDS = """
select slice.name as step, process.name as rank, ts + dur as moment from slice
join thread_track on slice.track_id = thread_track.id join thread using (utid)
join process using (upid) where slice.name glob 'step *'"""
_TRACKS = """
select distinct thread.name as name from slice
join thread_track on slice.track_id = thread_track.id join thread using (utid)"""
_LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def clock_put_ahead(run: Path, copy: Path, rank: int, host: str) -> Path:
    """All that was written on one host, by a clock that is wrong."""
    shutil.copytree(run, copy, symlinks=True)
    events = RunDirectory(copy)
    for path in (events.rank_events(rank), events.events / f"host-{host}.jsonl"):
        change_events(path, lambda event: {**event, "time": event["time"] + FAR_AHEAD})
    return copy


def assert_on_one_clock(perfetto: Perfetto, within_seconds: float) -> None:
    """Processes wait for each other in every step, so they end it at one moment."""
    ends: dict[str, list[int]] = {}
    for row in perfetto.query(_ENDS):
        ends.setdefault(row["step"], []).append(row["moment"])
    assert len(ends) == NUM_STEPS
    assert all(len(moments) == 2 for moments in ends.values())
    apart = sorted(abs(first - second) / 1e9 for first, second in ends.values())
    assert apart[NUM_STEPS // 4] < within_seconds


def test_perfetto_opens_the_trace_of_two_hosts_with_one_clock(start: Start, tmp_path: Path) -> None:
    run = start(2, f"steps={NUM_STEPS}", "checkpoint.every_steps=30", practice="compute=0.02")
    assert run.finish() == 0, run.said
    right = write_trace(run.run.path, tmp_path / "right.json")
    put_ahead = clock_put_ahead(run.run.path, tmp_path / "ahead", 1, "node1")
    moved = write_trace(put_ahead, tmp_path / "ahead.json")
    # Hosts of the lab share the machine's clock, so what is found between them is the error.
    error = right.offsets["node1"].mean_seconds
    uncertainty = right.offsets["node1"].uncertainty
    assert error is not None and uncertainty is not None
    within = max(LEAST_SECONDS, 3 * uncertainty)  # more where other work disturbs the machine
    assert abs(error) < within
    assert moved.offsets["node1"].mean_seconds == pytest.approx(FAR_AHEAD + error, abs=1e-4)
    browser = find_browser()
    assert browser is not None, "install chromium: tools/cluster-packages does"
    with open_in_perfetto(browser, tmp_path / "ahead.json") as perfetto:
        assert perfetto.query(_LOST) == []
        written = open_trace(tmp_path / "ahead.json").events
        (found,) = perfetto.query("select count(*) as slices from slice where dur >= 0")
        assert found["slices"] >= sum(event["ph"] == "X" for event in written)
        tracks = {row["name"].split(" (")[0] for row in perfetto.query(_TRACKS)}
        assert {"steps", "phases", "collectives", "checkpoints being written"} <= tracks
        (counters,) = perfetto.query("select count(*) as values_drawn from counter")
        assert counters["values_drawn"] == sum(event["ph"] == "C" for event in written)
        assert_on_one_clock(perfetto, within)
    assert json.loads((tmp_path / "ahead.json").read_text())["otherData"]["clocks"]["node1"]
