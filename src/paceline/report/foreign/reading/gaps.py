"""How long the steps between two time stamps took, without what was evaluated between them."""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from paceline.report.foreign.run import Points


class Evaluation(NamedTuple):
    end_time: float
    step: int
    seconds: float | None
    """None where nobody says how long it took."""


class Gap(NamedTuple):
    last_step: int
    num_steps: int
    seconds: float


def gaps_between(stamps: Points, evaluations: list[Evaluation]) -> list[Gap]:
    """`stamps` are steps and when they were logged; `evaluations` are in the order of time."""
    ends = [evaluation.end_time for evaluation in evaluations]
    gaps = []
    for one, other in pairwise(_moments(stamps)):
        between = evaluations[bisect_right(ends, one[1]) : bisect_right(ends, other[1])]
        gaps.append(Gap(other[0], other[0] - one[0], _seconds_between(one, other, between)))
    # Steps may be counted anew, and a clock may have been set back.
    return [gap for gap in gaps if gap.num_steps > 0 and gap.seconds > 0]


def _moments(stamps: Points) -> Points:
    """Some tools (trackio) write several values at once, with one stamp: that of the last."""
    moments: Points = []
    for step, time in stamps:
        if moments and moments[-1][1] == time:
            moments.pop()
        moments.append((step, time))
    return moments


def _seconds_between(
    one: tuple[int, float], other: tuple[int, float], between: list[Evaluation]
) -> float:
    """Of the steps alone: without evaluations that say how long they took, and without those that
    followed the first of the two at once."""
    known = sum(evaluation.seconds or 0.0 for evaluation in between)
    untimed = [e.end_time for e in between if e.seconds is None and e.step == one[0]]
    return other[1] - max([one[1], *untimed]) - known
