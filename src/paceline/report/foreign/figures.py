"""Which plots the log of another tool has: its curves in the shape that `plots` draws."""

import numpy as np

from paceline.report.foreign.curve import Points
from paceline.report.foreign.rates import schedule_of
from paceline.report.foreign.run import ForeignRun
from paceline.report.plots import Axis, Line, histogram, line_plot
from paceline.report.trend import in_groups
from paceline.schedule import rate_at

_MOST_POINTS = 300
_FEW_POINTS = 30
_STEP = Axis("step", lambda value: f"{value / 1e3:g} k" if value >= 1e4 else f"{value:,.0f}")


def plots_of(run: ForeignRun) -> list[str]:
    found = [_loss(run), _scores(run), _rate(run), _step_times(run)]
    return [plot for plot in found if plot]


def _line(name: str, points: Points, colour: int) -> Line:
    steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
    steps, values = in_groups(steps, values, _MOST_POINTS)
    return Line(name, steps, values, colour, has_dots=len(points) < _FEW_POINTS)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _loss(run: ForeignRun) -> str:
    lines = [
        _line("training loss, as it trains", run.training_loss.points, 0),
        _line("validation", run.validation_loss.points, 1),
    ]
    return line_plot("Loss", _STEP, Axis("loss", _number), lines)


def _scores(run: ForeignRun) -> str:
    """Only what has the scale of the first one: a BLEU of 0.2 is a flat line beside 76 %."""
    names = list(run.scores)[:3]
    lines = [_line(name, run.scores[name].points, 1 + i) for i, name in enumerate(names)]
    while len(lines) > 1 and _top(lines[-1]) > 10 * _top(lines[0]):
        lines.pop()
    return (
        line_plot(
            "Score on validation data",
            _STEP,
            Axis("score" if len(lines) > 1 else names[0], _number),
            lines,
        )
        if names
        else ""
    )


def _top(line: Line) -> float:
    return float(np.abs(line.ys).max(initial=1e-12))


def _rate(run: ForeignRun) -> str:
    schedule = schedule_of(run.config)
    lines = []
    if schedule is not None:
        steps = run.steps_wanted or max(run.step, 1)
        xs = np.unique(np.linspace(1, steps, _MOST_POINTS).astype(int))
        ys = np.array([rate_at(schedule, int(x), steps) for x in xs])
        is_done = xs <= run.step
        lines = [Line("planned", xs.astype(np.float64), ys, 3)]
        lines += [Line("as far as it got", xs[is_done].astype(np.float64), ys[is_done], 0)]
    elif run.rate:
        lines = [_line("as logged", run.rate.points, 0)]
    return line_plot("Learning rate", _STEP, Axis("rate", _number), lines)


def _step_times(run: ForeignRun) -> str:
    points = run.step_times.curve.points
    if len(points) < 10:
        return ""
    seconds = np.array([value for _, value in points], dtype=np.float64)
    every = run.step_times.steps_per_timing
    of = f" (means of {every:,} steps)" if every > 1 else ""
    axis = Axis(f"seconds per step{of}", lambda value: f"{value:.4g} s")
    return histogram("Step times", axis, seconds)
