"""Logs of several processes of one run, each in a file of its own."""

from collections.abc import Sequence

from paceline.report.foreign.run import ForeignRun
from paceline.units import count_of

_SAME_PACE = 0.03


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
