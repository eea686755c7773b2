"""How long the steps of a recorded run took, and why the slowest was slow."""

import numpy as np

from paceline.record.columns import StepColumns
from paceline.record.events import Event
from paceline.record.schema import CHECKPOINT, EVALUATE, PHASES, START_UP
from paceline.report.facts.facts import Slowest, StepTimes

_LEAST_EXTRA = 0.2
"""Of a usual step: less than that names no phase."""


_HOST_CLOCK = "a clock around every step of the first process"
_DEVICE_EVENTS = "events that the first process's device stamps at the end of every step"


def step_times(
    rows: StepColumns, slowest: list[Event], is_by_device: bool = False
) -> StepTimes | None:
    seconds = rows.step_seconds
    if not len(seconds):
        return None
    low, middle, high = (float(value) for value in np.percentile(seconds, [5, 50, 95]))
    total = max(float(seconds.sum(dtype=np.float64)), 1e-9)
    return StepTimes(
        num_steps=len(seconds),
        median_seconds=middle,
        mean_seconds=total / len(seconds),
        low_seconds=low,
        high_seconds=high,
        timings=seconds,
        num_timings=len(seconds),
        units_per_second=rows.total("num_units") / (total + _unlisted_seconds(rows)) or None,
        slowest=_slowest(rows, slowest),
        how=f"{_DEVICE_EVENTS if is_by_device else _HOST_CLOCK}; evaluations and saves between "
        "steps are not in it",
    )


def _unlisted_seconds(rows: StepColumns) -> float:
    """Of steps that are told line by line, as those of a very long run are."""
    unlisted = rows["num_step_seconds"] < rows["num_steps"]
    aside = rows[EVALUATE] + rows[CHECKPOINT]
    seconds = np.nan_to_num(rows["seconds"] - aside)
    return float(seconds[unlisted].clip(min=0.0).sum())


def _slowest(rows: StepColumns, recorded: list[Event]) -> Slowest:
    """The slowest step and the phase in which it lost most against the usual."""
    seconds = float(rows.step_seconds.max())
    if recorded:
        found = recorded[0]
        phases = {k: float(v) for k, v in (found.get("phases") or {}).items() if k in PHASES}
        return _why_slow(rows, int(found["step"]), seconds, phases)
    place = int(np.argmax(rows.step_seconds))
    ends = np.cumsum(rows["num_step_seconds"])
    row = int(np.searchsorted(ends, place, side="right"))
    count = max(float(rows["num_steps"][row]), 1.0)
    of_row = place - (ends[row] - rows["num_step_seconds"][row])
    step = int(rows["step"][row] - rows["num_step_seconds"][row] + 1 + of_row)
    phases = {k: float(v) / count for k, v in zip(PHASES, rows.phases[row], strict=True)}
    return _why_slow(rows, step, seconds, phases, is_by_neighbours=True)


def _why_slow(
    rows: StepColumns,
    step: int,
    seconds: float,
    phases: dict[str, float],
    is_by_neighbours: bool = False,
) -> Slowest:
    usual = np.median(rows.phases / rows["num_steps"][:, None], axis=0)
    extras = {
        name: phases.get(name, 0.0) - float(usual[PHASES.index(name)])
        for name in PHASES
        if name not in (EVALUATE, START_UP)
    }
    phase = max(extras, key=lambda name: extras[name])
    if extras[phase] <= _LEAST_EXTRA * max(float(usual.sum()), 1e-9):
        return Slowest(step, seconds)
    return Slowest(step, seconds, phase, extras[phase], is_by_neighbours)
