"""Who is late is judged once: the screen of a run and its report name the same rank."""

from pathlib import Path

import pytest

from paceline.report.facts.world_times import Interval, times_of_intervals
from paceline.report.own.run import read_run
from paceline.watch.live import open_run
from tests.stored_runs import BUSY, StoredRun

WAITS = {**BUSY, "network": BUSY["network"] + 0.2}
LATE = {**BUSY, "compute": BUSY["compute"] + 0.2}
HARDLY_WAITS = {**BUSY, "compute": BUSY["compute"] + 0.19, "network": BUSY["network"] + 0.01}
LATE_IN_INPUT = {**BUSY, "input": BUSY["input"] + 0.2}


def recorded(path: Path, *ranks: dict[str, float]) -> StoredRun:
    """A run of a good half minute, which both look at as a whole."""
    run = StoredRun(path, [dict(rank) for rank in ranks])
    run.launch()
    run.begin()
    run.train(100)
    return run


def named(run: StoredRun) -> list[tuple[int, str] | None]:
    """By the report and by who watches."""
    both = [read_run(run.path).verdict.straggler, open_run(run.path).straggler()]
    return [(late.rank, late.phase) if late is not None else None for late in both]


@pytest.mark.parametrize(
    ("ranks", "late"),
    [
        ((WAITS, LATE), (1, "compute")),
        ((LATE_IN_INPUT, WAITS, WAITS, WAITS), (0, "input")),
        ((WAITS, HARDLY_WAITS, LATE, WAITS), (2, "compute")),
        ((BUSY, BUSY), None),
        ((WAITS, WAITS, WAITS), None),
        ((LATE,), None),
    ],
)
def test_the_screen_and_the_report_name_the_same_rank(
    tmp_path: Path, ranks: tuple[dict[str, float], ...], late: tuple[int, str] | None
) -> None:
    assert named(recorded(tmp_path / "run", *ranks)) == [late, late]


def test_both_say_how_much_of_the_loop_is_lost(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", WAITS, LATE, WAITS)
    by_report, by_screen = read_run(run.path).verdict.straggler, open_run(run.path).straggler()
    assert by_report is not None and by_screen is not None
    assert by_screen.share == pytest.approx(by_report.share)
    assert by_screen.extra_seconds == pytest.approx(by_report.extra_seconds)


def test_ranks_that_are_late_by_turns_are_named_by_neither(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", WAITS, LATE)
    run.phases.reverse()
    run.train(100)
    assert named(run) == [None, None]


def test_a_rank_whose_last_lines_have_not_come_yet_does_not_disturb(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", WAITS, LATE)
    file = run.run.rank_events(1)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-2]), encoding="utf-8")
    assert named(run) == [(1, "compute"), (1, "compute")]


def test_lines_at_other_steps_are_put_together_by_the_first_ranks_lines() -> None:
    first = [Interval(10, 10, {"compute": 1.0}), Interval(20, 10, {"compute": 3.0})]
    other = [Interval(5 * n, 5, {"network": 1.0}) for n in range(1, 5)]
    times = times_of_intervals({0: first, 1: other, 2: []}, {0: "a", 1: "b"})
    assert times is not None and times.ranks == (0, 1) and times.hosts == ("a", "b")
    assert times.of("network")[1].tolist() == [0.2, 0.2]
    assert times.of("compute")[0].tolist() == [0.1, 0.3]
