"""The learning rate that training used, step by step, against what the recipe's formula says."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.record.columns import StepColumns
from paceline.record.events import Event
from paceline.report.facts.facts import Rate, Seam
from paceline.report.facts.trend import Points
from paceline.schedule import ScheduleSettings, batch_scale, rate_at

_SAME = 1e-3
"""Of a rate: what two of them may differ by and still be one, as records are rounded."""
_MOST_COMPARED = 1000


def recorded_rate(
    settings: dict[str, Any], rows: StepColumns, begins: list[Event], batch: int | None
) -> Rate:
    logged, attempts = _points(rows)
    try:
        schedule = ScheduleSettings.model_validate(settings.get("schedule", {}))
    except ValueError:
        return Rate(logged=logged)
    scale = batch_scale(schedule, batch) if batch else 1.0
    wanted = {event["attempt"]: event.get("steps_wanted") for event in begins}
    parts = [
        _Part(Points(logged.steps[attempts == n], logged.values[attempts == n]), wanted.get(n))
        for n in np.unique(attempts).tolist()
    ]
    steps = max(int(settings["steps"]), 1)
    seams = [
        _seam(before, after)
        for before, after in pairwise(parts)
        if _is_other(before, after, schedule, (steps, scale))
    ]
    first = seams[-1].next_step if seams else 0
    odd = _odd_steps(logged, first, schedule, (steps, scale))
    return Rate(schedule, scale, logged, tuple(seams), odd)


def logged_rates(rows: StepColumns) -> Points:
    return _points(rows)[0]


class _Part:
    """The rates of one attempt, and how many steps it wanted."""

    def __init__(self, points: Points, steps_wanted: int | None) -> None:
        self.points, self.steps_wanted = points, steps_wanted


def _points(rows: StepColumns) -> tuple[Points, NDArray[np.float64]]:
    """Of every step whose rate was recorded, else of the last one of its line; with the attempt."""
    counts = rows["num_step_seconds"].astype(int)
    is_known = ~np.isnan(rows.step_rates)
    known_rows = np.zeros(len(rows), bool)
    of_step = np.repeat(np.arange(len(rows)), counts)
    known_rows[of_step[is_known]] = True
    by_line = ~known_rows & ~np.isnan(rows["rate"])
    steps = np.concatenate([rows.step_numbers()[is_known], rows["step"][by_line]])
    rates = np.concatenate([rows.step_rates[is_known], rows["rate"][by_line]])
    attempts = np.concatenate([rows["attempt"][of_step[is_known]], rows["attempt"][by_line]])
    order = np.argsort(steps, kind="stable")
    return Points(steps[order], rates[order]), attempts[order]


def _follows(
    points: Points, schedule: ScheduleSettings, steps: int, scale: float
) -> NDArray[np.bool_]:
    """Which points are the formula's."""
    rates = np.array([scale * rate_at(schedule, int(step), steps) for step in points.steps])
    within: NDArray[np.bool_] = np.abs(points.values - rates) <= _SAME * np.maximum(
        np.abs(rates), 1e-12
    )
    return within


def _is_other(
    before: _Part, after: _Part, schedule: ScheduleSettings, now: tuple[int, float]
) -> bool:
    """Whether the second part went on with another schedule than the first was trained with."""
    steps, scale = now
    known = before.steps_wanted, after.steps_wanted
    some = _few(before.points)
    if None not in known and known[0] != known[1]:
        there = [rate_at(schedule, int(step), known[0] or 1) for step in some.steps]
        here = [rate_at(schedule, int(step), known[1] or 1) for step in some.steps]
        if not np.allclose(there, here, rtol=_SAME):
            return True
    fits = [bool(_follows(_few(p.points), schedule, steps, scale).all()) for p in (before, after)]
    return not fits[0] and fits[1]


def _few(points: Points) -> Points:
    stride = math.ceil(len(points) / _MOST_COMPARED) or 1
    return Points(points.steps[::stride], points.values[::stride])


def _seam(before: _Part, after: _Part) -> Seam:
    return Seam(
        last_step=int(before.points.steps[-1]),
        next_step=int(after.points.steps[0]),
        rate_before=float(before.points.values[-1]),
        rate_after=float(after.points.values[0]),
        steps_before=before.steps_wanted,
        steps_after=after.steps_wanted,
    )


def _odd_steps(
    logged: Points, first: int, schedule: ScheduleSettings, now: tuple[int, float]
) -> tuple[int, int] | None:
    """Since the last seam every rate should be the formula's."""
    later = logged.steps >= first
    some = _few(Points(logged.steps[later], logged.values[later]))
    wrong = some.steps[~_follows(some, schedule, *now)]
    return (int(wrong[0]), int(wrong[-1])) if len(wrong) else None
