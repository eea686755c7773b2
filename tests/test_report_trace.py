"""`report --trace`: a run as a trace that viewers open, on one clock."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.record.schema import RunDirectory
from paceline.report.trace import trace as trace_module
from paceline.report.trace.clocks import estimate_offsets
from paceline.report.trace.lines import RankLines, key_of
from paceline.report.trace.trace import write_trace
from tests.conftest import CommandLine
from tests.stored_runs import StoredRun, overfitting, restarted
from tests.trace_format import Trace, open_trace

Event = dict[str, Any]


def trace_of(run: Path) -> Trace:
    file = run.parent / f"{run.name}.json"
    write_trace(run, file)
    return open_trace(file)


def change_events(path: Path, change: Callable[[Event], Event]) -> None:
    events = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def on_another_host(run: Path, copy: Path, ahead: float) -> Path:
    """The run with rank 1 on a host of its own, whose clock is wrong."""
    shutil.copytree(run, copy, symlinks=True)

    def move(event: Event) -> Event:
        host = {"host": "other"} if event["kind"] == "begin" else {}
        return {**event, **host, "time": event["time"] + ahead}

    change_events(RunDirectory(copy).rank_events(1), move)
    return copy


def lines(rank: int, host: str, times: np.ndarray[Any, np.dtype[np.float64]]) -> RankLines:
    keys = np.array([key_of(1, 10 * (n + 1)) for n in range(len(times))], dtype=np.int64)
    begin = {"kind": "begin", "host": host, "attempt": 1, "step": 0, "time": 0.0, "seconds": 0.0}
    return RankLines(rank, keys, times, np.zeros(len(times)), [begin], [], range(len(times)))


def test_a_real_run_becomes_a_trace_with_all_it_did(
    finished_run: Path, paceline: CommandLine
) -> None:
    result = paceline("report", str(finished_run), "--trace", "out.json.gz")
    assert result.returncode == 0, result.stderr
    assert "perfetto" in result.stderr + result.stdout
    trace = open_trace(paceline.cwd / "out.json.gz")
    for rank in ("rank 0", "rank 1"):
        steps = [s for s in trace.slices(rank, "steps") if s["name"].startswith("step ")]
        assert [s["name"] for s in steps] == [f"step {n}" for n in range(1, 13)]
        assert trace.slices(rank, "steps")[0]["name"] == "start-up"
        phases = trace.slices(rank, "phases")
        assert {"compute", "network", "input", "optimizer"} <= {s["name"] for s in phases}
        assert all(s["args"]["known"] == "sum over these steps" for s in phases)
        exchanged = trace.slices(rank, "collectives")
        assert all(s["args"]["all_reduce_bytes"] > 0 for s in exchanged)
        waited = sum(s["dur"] for s in phases if s["name"] == "network")
        assert sum(s["dur"] for s in exchanged) == waited > 0
    assert [s["args"]["step"] for s in trace.slices("rank 0", "evaluations")] == [6, 12]
    assert [s["args"]["step"] for s in trace.slices("rank 0", "checkpoints")] == [6, 12]
    counters = {event["name"] for event in trace.events if event["ph"] == "C"}
    assert {"cores busy (%)", "memory (GB)", "sent (MB/s)"} <= counters


def test_phases_of_the_trace_add_up_to_those_of_the_events(finished_run: Path) -> None:
    run = RunDirectory(finished_run)
    events = [json.loads(line) for line in run.rank_events(0).read_text().splitlines()]
    told = sum(e["phases"]["compute"] for e in events if e["kind"] == "steps")
    file = finished_run.parent / "sums.json"
    write_trace(finished_run, file)
    drawn = [s for s in open_trace(file).slices("rank 0", "phases") if s["name"] == "compute"]
    assert sum(s["dur"] for s in drawn) / 1e6 == pytest.approx(told, rel=1e-3)


def test_a_clock_that_is_ten_seconds_off_is_put_right(finished_run: Path, tmp_path: Path) -> None:
    right = trace_of(on_another_host(finished_run, tmp_path / "right", ahead=0.0))
    wrong = trace_of(on_another_host(finished_run, tmp_path / "wrong", ahead=10.0))
    apart = wrong.about["clocks"]["other"]["ahead_seconds"]
    assert apart - right.about["clocks"]["other"]["ahead_seconds"] == pytest.approx(10, abs=1e-4)
    for track in ("steps", "phases"):
        pairs = zip(right.slices("rank 1", track), wrong.slices("rank 1", track), strict=True)
        assert max(abs(one["ts"] - other["ts"]) for one, other in pairs) < 1000  # microseconds


def test_offsets_are_within_a_millisecond_in_spite_of_delays() -> None:
    random = np.random.default_rng(1)
    truth = 1.75e9 + np.cumsum(random.gamma(50, 0.1, 400))

    def noisy() -> np.ndarray[Any, np.dtype[np.float64]]:
        """Most lines are written at once; a third of them late, by tens of milliseconds."""
        late = random.exponential(0.02, len(truth)) * (random.random(len(truth)) < 0.33)
        return truth + 20e-6 * random.random(len(truth)) + late

    drifting = 3 + 30e-6 * (truth - truth[0])
    found = estimate_offsets(
        [
            lines(0, "a", noisy()),
            lines(1, "a", noisy()),
            lines(2, "b", noisy() + 10),
            lines(3, "b", noisy() + 10),
            lines(4, "c", noisy() + drifting),
        ]
    )
    assert found["b"].at(1, truth[10] + 10) == pytest.approx(10, abs=1e-3)
    for place in (0, 200, 399):
        own = truth[place] + drifting[place]
        assert found["c"].at(1, own) == pytest.approx(drifting[place], abs=1e-3)


def test_a_clock_that_was_set_between_attempts_is_told_apart(tmp_path: Path) -> None:
    run = restarted(tmp_path / "a").run

    def set_clock(event: Event) -> Event:
        host = {"host": "other"} if event["kind"] == "begin" else {}
        return {**event, **host, "time": event["time"] + 5 * event["attempt"]}

    change_events(run.rank_events(1), set_clock)
    trace = trace_of(run.path)
    first, second = (
        {s["name"]: s["ts"] for s in trace.slices(rank, "steps") if s["name"].startswith("step ")}
        for rank in ("rank 0", "rank 1")
    )
    assert max(abs(first[name] - second[name]) for name in first) < 1000
    redone = [s for s in trace.slices("rank 0", "steps") if "lost" in s.get("args", {})]
    assert redone


def test_a_long_run_is_thinned_and_keeps_its_slow_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StoredRun(tmp_path / "a", [{"compute": 0.1}, {"compute": 0.1}])
    run.launch()
    run.begin()
    run.train(3000)
    run.end()
    slow = 1237

    def slow_down(event: Event) -> Event:
        if event["kind"] == "steps" and event["step"] - 10 < slow <= event["step"]:
            seconds = [0.07] * 10
            seconds[slow - event["step"] - 1] = 0.3
            event["step_seconds"] = seconds
            event["slowest_step"] = {"step": slow, "seconds": 0.3, "phases": {"input": 0.2}}
        return event

    change_events(run.run.rank_events(1), slow_down)
    monkeypatch.setattr(trace_module, "MOST_EVENTS", 1000)
    trace = trace_of(run.path)
    assert len(trace.events) < 1200
    assert trace.about["share_of_log_lines_drawn"] < 0.1
    for rank in ("rank 0", "rank 1"):  # who waited is seen as well
        names = [s["name"] for s in trace.slices(rank, "steps")]
        assert f"step {slow}" in names
        drawn = sum(name.startswith("step ") for name in names)
        left_out = sum(int(n.split()[0]) for n in names if n.endswith("steps not drawn"))
        assert drawn + left_out == 3000
    inside = [s for s in trace.slices("rank 1", "steps") if s["name"] == "input"]
    assert any(s["dur"] == pytest.approx(200_000, abs=1) for s in inside)


def test_large_files_are_read_by_pattern_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = overfitting(tmp_path / "a").path
    parsed = trace_of(run)
    monkeypatch.setattr("paceline.report.trace.lines._LEAST_BYTES", 0)
    assert trace_of(run).events == parsed.events


def test_what_was_counted_before_the_first_step_is_not_before_zero(tmp_path: Path) -> None:
    run = overfitting(tmp_path / "a").run
    begin = json.loads(run.rank_events(0).read_text().splitlines()[0])
    early = {"kind": "probe", "time": begin["time"] - 500, "attempt": 1, "seconds": 5.0}
    with (run.events / "host-one.jsonl").open("a") as file:
        file.write(json.dumps({**early, "host": "one", "cpu_share": 0.5}) + "\n")
    counters = [event for event in trace_of(run.path).events if event["ph"] == "C"]
    assert min(event["ts"] for event in counters) == 0


def test_torn_lines_and_control_characters_leave_a_whole_trace(tmp_path: Path) -> None:
    run = overfitting(tmp_path / "a").run
    with run.rank_events(0).open("a") as file:
        warning = {"kind": "warning", "time": 1_700_000_100.0, "attempt": 1, "text": "\x1b[31m red"}
        file.write(json.dumps(warning) + '\n{"kind": "steps", "time": 17000')
    trace = trace_of(run.path)
    assert any("\\u001b" in str(e.get("args", {}).get("text")) for e in trace.events)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path, paceline: CommandLine) -> None:
    run = StoredRun(tmp_path / "a", [{"compute": 0.1}])
    with pytest.raises(UserError, match="no steps yet"):
        write_trace(run.path, tmp_path / "out.json")
    log = tmp_path / "train.log"
    log.write_text("Epoch: [0][0/10]\tTime  0.5 ( 0.5)\tData  0.1 ( 0.1)\tLoss 2.3 (2.3)\n" * 20)
    result = paceline("report", str(log), "--trace", "out.json")
    assert result.returncode == 2
