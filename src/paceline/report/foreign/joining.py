"""Several runs in one log, and several logs of one run: which belong together.

Resumed runs become one, of others the longest is told about; processes that stepped together are
one run.
"""

from collections.abc import Sequence

from paceline.report.foreign.run import Curve, ForeignRun
from paceline.units import count_of

_SAME_PACE = 0.03


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
    if earlier.first_not_finite is None:
        earlier.first_not_finite = later.first_not_finite
    earlier.not_finite_from = later.not_finite_from
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


def join_ranks(runs: Sequence[ForeignRun]) -> list[ForeignRun]:
    """Processes that exchange gradients step together: same last step, same time in all."""
    groups: list[list[ForeignRun]] = []
    for run in runs:
        together = next((group for group in groups if _step_together(group[0], run)), None)
        if together is None:
            groups.append([run])
        else:
            together.append(run)
    return [_one_of(group) if len(group) > 1 else group[0] for group in groups]


def _step_together(one: ForeignRun, other: ForeignRun) -> bool:
    seconds = one.step_times.total_seconds, other.step_times.total_seconds
    return (
        (one.tool, one.step, one.steps_per_epoch) == (other.tool, other.step, other.steps_per_epoch)
        and one.step_times.num_steps == other.step_times.num_steps > 1
        and max(seconds) <= (1 + _SAME_PACE) * min(seconds)
    )


def _one_of(ranks: list[ForeignRun]) -> ForeignRun:
    """The first file's curves, and waits that are the mean over all."""
    run = ranks[0]
    waits = [rank.step_times.input_seconds for rank in ranks]
    known = [wait for wait in waits if wait is not None]
    if known:
        run.step_times.input_seconds = sum(known) / len(known)
    if len(ranks) > (run.world or 0):
        run.world, run.world_how = len(ranks), "the files of processes that stepped together"
    names = ", ".join(rank.path.name for rank in ranks[1:4])
    more = ", ..." if len(ranks) > 4 else ""
    run.notes.append(
        f"{count_of(len(ranks), 'file')} of one run, by their steps and times: curves are from "
        f"{run.path.name}, waits are the mean with {names}{more}"
    )
    return run
