"""Several runs in one log: resumed ones become one, of others the longest is told about."""

from collections.abc import Sequence

from paceline.report.foreign.curve import Curve
from paceline.report.foreign.run import ForeignRun
from paceline.units import count_of


def one_run(runs: Sequence[ForeignRun]) -> ForeignRun:
    """The run that a report is about; its notes name the others."""
    joined = _join_resumed(runs)
    chosen = max(joined, key=lambda run: (run.step, run.step_times.num_steps))
    others = [run for run in joined if run is not chosen]
    if others:
        ends = ", ".join(f"step {run.step:,}" for run in others)
        chosen.notes.append(
            f"there are {count_of(len(joined), 'run')} here; this is about the longest, "
            f"the others end at {ends}"
        )
    return chosen


def _join_resumed(runs: Sequence[ForeignRun]) -> list[ForeignRun]:
    joined: list[ForeignRun] = []
    for run in runs:
        if joined and _resumes(run, joined[-1]):
            joined[-1] = _join(joined[-1], run)
        else:
            joined.append(run)
    return joined


def _resumes(run: ForeignRun, earlier: ForeignRun) -> bool:
    points = run.training_loss.points
    # From scratch some tools begin to count at 0, some at 1.
    return bool(points) and 1 < points[0][0] <= earlier.step + (run.print_every_steps or 1)


def _join(earlier: ForeignRun, later: ForeignRun) -> ForeignRun:
    begin = later.training_loss.points[0][0]
    redone = max(0, earlier.step - begin)
    later.notes = [
        *earlier.notes,
        *later.notes,
        f"it was resumed at step {begin:,}"
        + (f"; {redone:,} steps were done again" * bool(redone)),
    ]
    later.training_loss = _continued(earlier.training_loss, later.training_loss, begin)
    later.validation_loss = _continued(earlier.validation_loss, later.validation_loss, begin)
    later.rate = _continued(earlier.rate, later.rate, begin)
    for mine, theirs in (
        (later.scores, earlier.scores),
        (later.training_scores, earlier.training_scores),
    ):
        for name, curve in theirs.items():
            mine[name] = _continued(curve, mine.get(name, Curve()), begin)
    _add_times(earlier, later)
    return later


def _continued(earlier: Curve, later: Curve, begin: int) -> Curve:
    earlier.drop_from(begin)
    for step, value in later.points:
        earlier.add(step, value)
    return earlier


def _add_times(earlier: ForeignRun, later: ForeignRun) -> None:
    """Steps that were done twice took their time twice."""
    mine, theirs = later.step_times, earlier.step_times
    mine.num_steps += theirs.num_steps
    mine.total_seconds += theirs.total_seconds
    if mine.input_seconds is not None and theirs.input_seconds is not None:
        mine.input_seconds += theirs.input_seconds
    timings = sorted([*theirs.curve.points, *mine.curve.points])
    slowest = [point for point in (mine.slowest, theirs.slowest) if point is not None]
    mine.curve = Curve()
    for step, seconds in timings:
        mine.curve.add(step, seconds)
    mine.slowest = max(slowest, key=lambda point: point[1]) if slowest else None
    if earlier.wall_seconds and later.wall_seconds:
        later.wall_seconds += earlier.wall_seconds
