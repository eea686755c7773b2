"""Judgements of what was learned, with one threshold each, for runs and logs alike."""

import math
import re
from dataclasses import dataclass

import numpy as np

from paceline.report.facts.facts import Facts, Learning, Rate, Score
from paceline.report.facts.trend import (
    LAST_SHARE,
    LEAST_POINTS,
    Numbers,
    Points,
    Trend,
    in_groups,
    trend,
    trend_at_end,
)
from paceline.schedule import peak, rate_at
from paceline.units import format_number

_MOST_LOSSES = 60
_FEW_LINES = 3 * LEAST_POINTS
"""Of which the last third would be too few for a trend."""
_SETTLED_SHARE = 0.1
"""Of its peak: a rate below that leaves the weights where they are."""
_SPENT_SHARE = 0.02
"""Of its peak: a rate below that is zero for all that training can still do. Many schedules end
at a hundredth."""
_CLEAR_FALL = 0.03
"""Of the validation loss, from one evaluation to the next: noise of a whole data set is smaller."""
_DROP = 0.5
_STILL = 0.8
_LEAST_RISE = 0.01
_EARLY_SHARE = 0.01
_TOO_GOOD = 1.5
_ONE_EPOCH = 0.995
"""Pairs that are left out and rounding keep a whole epoch a little below 1."""


_LOWER_IS_BETTER = re.compile(
    r"\b(?:loss|wer|cer|ter|ppl|perplexity|err|error|errors|mae|mse|rmse|fid|eer|per|bpb|bpc|nll"
    r"|word error rate|character error rate)\b",
    re.IGNORECASE,
)


def is_lower_better(measure: str) -> bool:
    """By its name: an error rate, a distance, a perplexity."""
    return bool(_LOWER_IS_BETTER.search(measure.replace("_", " ").replace("-", " ")))


def series(scores: list[Score], name: str) -> Points:
    """One measure by step; of a step scored twice the later one."""
    found = {score.step: score.values[name] for score in scores if name in score.values}
    return Points.of((step, found[step]) for step in sorted(found))


def measures(scores: list[Score]) -> list[str]:
    """Everything that was scored but the loss, the most important first."""
    return [n for n in dict.fromkeys(name for s in scores for name in s.values) if n != "loss"]


def since_the_rate_dropped(points: Points, rate: Rate) -> Points:
    """Without what lies before a sudden fall of the rate in the last third: the curve bends there,
    and a slope across the bend says nothing of what comes."""
    if not len(points):
        return points
    begin = float(points.steps[-max(LEAST_POINTS, math.ceil(len(points) / 3)) :][0])
    drop = last_drop(rate, begin, float(points.steps[-1]))
    if drop is None:
        return points
    after = points.steps >= drop
    return Points(points.steps[after], points.values[after])


def last_drop(rate: Rate, begin: float, end: float) -> float | None:
    """The last step from `begin` to `end` at which the rate fell at once by half or more."""
    if rate.schedule is not None:
        is_piecewise = rate.schedule.policy == "piecewise" and rate.schedule.factor <= _DROP
        drops = [float(step) for step in rate.schedule.boundaries] if is_piecewise else []
    else:
        drops = _steps_down(rate.logged)
    inside = [step for step in drops if begin < step <= end]
    return max(inside, default=None)


def _steps_down(logged: Points) -> list[float]:
    """Where a rate that stood still fell and stood still again: a smooth decay has no such step."""
    steps, values = logged.steps, logged.values
    if len(values) < LEAST_POINTS:
        return []
    stays = values[1:] >= _STILL * values[:-1]
    fell = (values[1:] <= _DROP * values[:-1]) & (values[1:] > 0)
    places = np.flatnonzero(stays[:-2] & fell[1:-1] & stays[2:])
    return [float(steps[place + 2]) for place in places]


def score_trend(learning: Learning, rate: Rate | None = None) -> Trend | None:
    curve = series(learning.scores, learning.best_by)
    return _trend_at_end(curve, rate)


def validation_trend(learning: Learning, rate: Rate | None = None) -> Trend | None:
    """Of the loss on validation data."""
    return _trend_at_end(series(learning.scores, "loss"), rate)


def _trend_at_end(curve: Points, rate: Rate | None) -> Trend | None:
    if rate is None:
        return trend_at_end(curve)
    rest = since_the_rate_dropped(curve, rate)
    if len(rest) == len(curve):
        return trend_at_end(curve)
    return trend(rest.steps, rest.values)


@dataclass(frozen=True)
class LastFall:
    """Of the validation loss, between the last two evaluations."""

    first_step: float
    last_step: float
    before: float
    after: float


def last_fall(learning: Learning, last_step: int) -> LastFall | None:
    """Where there are too few evaluations for a trend: a fall near the end of the run that is
    clearly more than noise."""
    scored = series(learning.scores, "loss")
    curve = Points(scored.steps[scored.steps > 0], scored.values[scored.steps > 0])
    if len(curve) < 2 or curve.steps[-1] < (1 - LAST_SHARE) * last_step:
        return None
    if not 0 < curve.values[-1] <= (1 - _CLEAR_FALL) * curve.values[-2]:
        return None
    (first, last), (before, after) = curve.steps[-2:].tolist(), curve.values[-2:].tolist()
    return LastFall(first, last, before, after)


def loss_trend(learning: Learning, rate: Rate | None = None) -> Trend | None:
    """Neighbours are averaged, so that very many steps are no more work than some; in a run of few
    lines every step counts."""
    is_short = len(learning.loss) < _FEW_LINES and len(learning.loss_by_step)
    loss = learning.loss_by_step if is_short else learning.loss
    rest = loss if rate is None else since_the_rate_dropped(loss, rate)
    grouped = Points(*in_groups(rest.steps, rest.values, _MOST_LOSSES))
    if len(rest) < len(loss):
        return trend(grouped.steps, grouped.values)
    return trend_at_end(grouped)


def is_settled(share_of_peak: float) -> bool:
    """Whether the rate has come down, so that a slope of the past does not go on."""
    return share_of_peak < _SETTLED_SHARE


def has_settled(facts: Facts) -> bool:
    """By the rates that were recorded; by the formula where none were."""
    share = _share_of_peak(facts)
    return share is not None and is_settled(share)


def is_spent(facts: Facts) -> bool:
    """Whether the rate is so near zero that going on with this schedule brings nothing."""
    share = _share_of_peak(facts)
    return share is not None and share <= _SPENT_SHARE


def _share_of_peak(facts: Facts) -> float | None:
    if is_below_one_epoch(facts):
        return None
    logged, schedule = facts.rate.logged, facts.rate.schedule
    if len(logged) > 1 and (facts.is_own or schedule is None):
        highest = float(logged.values.max())
        return float(logged.values[-1]) / highest if highest > 0 else None
    if schedule is None:
        return None
    steps = planned_steps(facts)
    return rate_at(schedule, max(facts.step, 1), steps) / peak(schedule, steps)[0]


def is_below_one_epoch(facts: Facts) -> bool:
    """Whether a part of the training data was never seen."""
    epochs = facts.data.epochs
    return epochs is not None and 0 < epochs < _ONE_EPOCH


def is_warming_up(facts: Facts) -> bool:
    """Whether the rate was still rising to its peak in the last step; of a log that tells no
    schedule nobody knows what the rate was to become."""
    schedule = facts.rate.schedule
    return schedule is not None and 0 < facts.step <= schedule.warmup_steps


def planned_steps(facts: Facts) -> int:
    return max(facts.steps_wanted if facts.steps_wanted is not None else facts.step, 1)


def diverged(learning: Learning) -> str:
    """Why the loss says that the run was lost, or nothing."""
    if learning.stopped_because:
        return learning.stopped_because
    if learning.not_finite_from is not None:
        return f"the loss is not a number from step {learning.not_finite_from:,} on"
    _, smooth = in_groups(learning.loss.steps, learning.loss.values, 20)
    if len(smooth) >= 4 and smooth[-1] > max(1.5 * float(np.nanmin(smooth)), float(smooth[0])):
        return (
            f"the loss diverged: it rose from {format_number(float(np.nanmin(smooth)))} to "
            f"{format_number(float(smooth[-1]))}, above where it began"
        )
    return ""


@dataclass(frozen=True)
class Turn:
    """A curve that was best at `step` and has been getting worse since, or has not."""

    step: int
    best: float
    last_step: int
    last: float
    worse_by: float
    has_turned: bool
    """Worse by more than its scatter, and by more than 1 %, in more than the last point alone."""


def find_turn(points: Points, lower_is_better: bool = True) -> Turn:
    values = points.values if lower_is_better else -points.values
    best = int(np.argmin(values))
    worse_by = float(values[-1] - values[best])
    between = np.abs(np.diff(values))
    noise = float(np.median(between)) if len(between) > 2 else 0.0
    least = float(values[best]) + max(2 * noise, _LEAST_RISE * abs(float(values[best])))
    return Turn(
        step=int(points.steps[best]),
        best=float(points.values[best]),
        last_step=int(points.steps[-1]),
        last=float(points.values[-1]),
        worse_by=worse_by,
        has_turned=len(values) - best > 2 and bool((values[-2:] > least).all()),
    )


@dataclass(frozen=True)
class Gap:
    """Validation against training data. Overfitting is a validation loss that has turned up while
    the training loss goes on down."""

    turn: Turn
    train_loss: float
    """At the end; NaN where nothing is known of it."""
    train_fall: float
    """Since the validation loss was lowest."""
    gap_before: float
    is_same_measure: bool
    """Training data was scored as validation data was, so that the two may be subtracted."""

    @property
    def is_overfitting(self) -> bool:
        return self.turn.has_turned and not self.train_fall <= 0

    @property
    def gap(self) -> float:
        return self.turn.last - self.train_loss


def find_gap(learning: Learning) -> Gap | None:
    """By losses that were measured alike if there are two, else by the loss as it trains."""
    validation, train = series(learning.scores, "loss"), series(learning.train_scores, "loss")
    both = np.intersect1d(validation.steps, train.steps)
    if len(both) >= 2:
        ours = Points(both, _at(validation, both))
        return _gap_of(ours, Points(both, _at(train, both)), is_same_measure=True)
    return _gap_of(validation, learning.loss, False) if len(validation) >= 2 else None


def _at(points: Points, steps: Numbers) -> Numbers:
    values: Numbers = points.values[np.searchsorted(points.steps, steps)]
    return values


def _gap_of(validation: Points, train: Points, is_same_measure: bool) -> Gap:
    turn = find_turn(validation)
    if not len(train):
        return Gap(turn, math.nan, math.nan, math.nan, is_same_measure)
    now = train.near(turn.last_step)
    return Gap(
        turn=turn,
        train_loss=now,
        train_fall=train.near(turn.step) - now,
        gap_before=float(validation.values[0]) - train.near(float(validation.steps[0])),
        is_same_measure=is_same_measure,
    )


def is_doubtful_start(points: Points, learning: Learning, last_step: int) -> bool:
    """A score that is best before anything was learned does not measure what was learned."""
    if len(points) < 2 or points.steps[0] > _EARLY_SHARE * last_step or not len(learning.loss):
        return False
    if learning.lower_is_better:
        return bool(_TOO_GOOD * points.values[0] <= points.values[-1])
    return bool(points.values[0] >= _TOO_GOOD * points.values[-1])


def best_score(learning: Learning) -> Score | None:
    known = [score for score in learning.scores if learning.best_by in score.values]
    sign = -1 if learning.lower_is_better else 1
    return max(known, key=lambda score: sign * score.values[learning.best_by], default=None)


def best_of(curve: Points, learning: Learning) -> float:
    return float(curve.values.min() if learning.lower_is_better else curve.values.max())
