"""Which plots a run has: its curves brought into the shape that `svg` draws."""

import math

import numpy as np

from paceline.record.schema import EVALUATE, PHASES
from paceline.report.answers.rate import planned_rates
from paceline.report.comparison import RunCurve
from paceline.report.facts.facts import Facts, Learning, Score
from paceline.report.facts.learning import measures, series
from paceline.report.facts.network import LOOPBACK
from paceline.report.facts.trend import Points, in_groups
from paceline.report.facts.world_times import LOOP
from paceline.report.render.style import phase_class
from paceline.report.render.svg import Axis, Layer, Line, histogram, line_plot, stacked
from paceline.report.scaling import ScalingPoint

_MOST_POINTS = 300
_MOST_BARS = 60
_FEW_POINTS = 30
_LEAST_TIMINGS = 10


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e4 else f"{value:,.0f}"


_STEP = Axis("step", _count, is_whole=True)


def _seconds_axis(label: str, high: float) -> Axis:
    """One unit for the whole axis, so that neighbouring ticks differ."""
    if high < 1:
        return Axis(label, lambda value: f"{1000 * value:.4g} ms", low=0.0)
    if high < 180:
        return Axis(label, lambda value: f"{value:.4g} s", low=0.0)
    return Axis(label, lambda value: f"{value / 60:.4g} min", low=0.0)


def _bytes_axis(high: float) -> Axis:
    unit, name = next(
        (
            (size, name)
            for size, name in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
            if high > size
        ),
        (1.0, "bytes/s"),
    )
    return Axis(name, lambda value: f"{value / unit:.4g}", low=0.0)


def _number(value: float) -> str:
    return f"{value:.4g}"


_MINUTES = Axis("minutes", _number)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def plots_of(facts: Facts) -> list[str]:
    """Every plot for which something is known."""
    found = [
        loss(facts),
        score(facts),
        rate(facts),
        step_histogram(facts),
        phases(facts),
        traffic(facts),
        busy(facts),
    ]
    return [plot for plot in found if plot]


def _line(name: str, points: Points, colour: int) -> Line:
    """Averages of neighbours; the first and the last point are as they are."""
    if len(points) <= _MOST_POINTS:
        return Line(name, points.steps, points.values, colour, has_dots=len(points) < _FEW_POINTS)
    steps, values = in_groups(points.steps[1:-1], points.values[1:-1], _MOST_POINTS)
    return Line(
        name,
        np.array([points.steps[0], *steps, points.steps[-1]]),
        np.array([points.values[0], *values, points.values[-1]]),
        colour,
    )


def _corners(name: str, points: Points, colour: int) -> Line:
    """The lowest and the highest of neighbours, so that a peak keeps its step and its height."""
    if len(points) <= _MOST_POINTS:
        return _line(name, points, colour)
    cuts = np.array_split(np.arange(len(points)), _MOST_POINTS // 2)
    kept = {0, len(points) - 1}
    for own in cuts:
        values = points.values[own]
        kept |= {int(own[np.argmin(values)]), int(own[np.argmax(values)])}
    places = sorted(kept)
    return Line(name, points.steps[places], points.values[places], colour)


def _dotted(name: str, scores: list[Score], measure: str, colour: int) -> Line:
    points = series(scores, measure)
    return Line(name, points.steps, points.values, colour, has_dots=True)


def loss(facts: Facts) -> str:
    learning = facts.learning
    lines = [
        _line("training loss, as it trains", _losses(learning), 0),
        _dotted("validation", learning.scores, "loss", 1),
        _dotted("training data, scored like validation", learning.train_scores, "loss", 2),
    ]
    return line_plot("Loss", _STEP, Axis("loss", _number), lines)


def _losses(learning: Learning) -> Points:
    """Step by step where that is known: the first steps are where most happens."""
    return learning.loss_by_step if len(learning.loss_by_step) else learning.loss


def score(facts: Facts) -> str:
    """The measure that counts; of a log those beside it that have its scale."""
    learning, by = facts.learning, facts.learning.best_by
    if not facts.is_own:
        return _scores_of_log(facts)
    lines = [
        _dotted(f"{by}, validation", learning.scores, by, 1),
        _dotted(f"{by}, training data", learning.train_scores, by, 2),
    ]
    return line_plot(f"Score ({by})", _STEP, Axis(by, _number), lines)


def _scores_of_log(facts: Facts) -> str:
    """Only what has the scale of the first one: a BLEU of 0.2 is a flat line beside 76 %."""
    scores = facts.learning.scores
    names = measures(scores)[:3]
    lines = [_line(name, series(scores, name), 1 + n) for n, name in enumerate(names)]
    while len(lines) > 1 and _top(lines[-1]) > 10 * _top(lines[0]):
        lines.pop()
    label = names[0] if len(lines) == 1 else "score"
    return line_plot("Score on validation data", _STEP, Axis(label, _number), lines)


def _top(line: Line) -> float:
    return float(np.abs(line.ys).max(initial=1e-12))


def rate(facts: Facts) -> str:
    axis = Axis("rate", lambda value: f"{value:.3g}", low=0.0)
    lines = [_corners("learning rate", facts.rate.logged, 3)]
    schedule = facts.rate.schedule
    if schedule is not None and not len(facts.rate.logged):
        plan = planned_rates(facts, schedule)
        is_done = plan.steps <= facts.step
        lines = [
            _line("planned", plan, 3),
            _line("as far as it got", Points(plan.steps[is_done], plan.values[is_done]), 0),
        ]
    return line_plot("Learning rate", _STEP, axis, lines)


def step_histogram(facts: Facts) -> str:
    times = facts.step_times
    if times is None or (not facts.is_own and len(times.timings) < _LEAST_TIMINGS):
        return ""
    of = f" (means of {times.steps_per_timing:,})" if times.steps_per_timing > 1 else ""
    axis = _seconds_axis(f"duration of a step{of}", times.median_seconds)
    return histogram("How long steps took", axis, times.timings.astype(np.float64))


def phases(facts: Facts) -> str:
    """Seconds per step, the mean over all processes, along the run."""
    times = facts.world.times
    if times is None or not len(times.num_steps):
        return ""
    count = len(times.num_steps)
    mean = np.nanmean(times.seconds, axis=0)
    group = math.ceil(count / _MOST_BARS)
    cuts = np.arange(0, count, group)
    weights = np.add.reduceat(times.num_steps, cuts)
    first = max(float(times.last_steps[0] - times.num_steps[0]), 0.0)
    edges = np.array([first, *times.last_steps[[*(cuts[1:] - 1), count - 1]]])
    layers = [
        Layer(
            name,
            np.add.reduceat(mean[:, n] * times.num_steps, cuts) / weights,
            phase_class(name),
        )
        for n, name in enumerate(PHASES)
        if name in (*LOOP, EVALUATE)
    ]
    axis = _seconds_axis("time per step", float(np.median(mean.sum(axis=1))))
    return stacked("Phases over time", _STEP, axis, edges, layers)


def traffic(facts: Facts) -> str:
    """Nothing for one process, which sends nothing: what is on its interface is others'."""
    if facts.world.size == 1:
        return ""
    lines = [
        Line(f"{use.host} {way} ({use.interface})", 60 * use.series.hours, values, 2 * n + shift)
        for n, use in enumerate(facts.world.hosts[:4])
        for way, shift, values in (
            ("sends", 0, use.series.sent_bytes_per_second),
            ("receives", 1, use.series.received_bytes_per_second),
        )
    ]
    highest = max(
        (float(np.nanmax(line.ys)) for line in lines if np.isfinite(line.ys).any()), default=0.0
    )
    is_shared = any(use.interface == LOOPBACK for use in facts.world.hosts)
    title = f"Traffic on {LOOPBACK}, of all programs" if is_shared else "Traffic of each host"
    return line_plot(title, _MINUTES, _bytes_axis(highest), lines)


def busy(facts: Facts) -> str:
    lines = []
    for n, use in enumerate(facts.world.hosts[:5]):
        minutes = 60 * use.series.hours
        lines.append(Line(f"{use.host} cores", minutes, use.series.cpu_share, 2 * n))
        lines.append(Line(f"{use.host} devices", minutes, use.series.device_share, 2 * n + 1))
    return line_plot(
        "Utilisation of each host", _MINUTES, Axis("busy", _share, low=0.0, high=1.0), lines
    )


def compared_loss(curves: list[RunCurve]) -> str:
    lines = [Line(c.run, c.minutes, c.loss, n) for n, c in enumerate(curves[:10])]
    axis = Axis("loss", _number)
    return line_plot("Loss over time", _MINUTES, axis, lines)


def compared_score(curves: list[RunCurve]) -> str:
    lines = [
        Line(c.run, c.score_minutes, c.score, n, has_dots=True) for n, c in enumerate(curves[:10])
    ]
    axis = Axis("score", _number)
    return line_plot("Score over time", _MINUTES, axis, lines)


def compared_scaling(points: list[ScalingPoint]) -> str:
    """The speed-up of each run beside that of perfect scaling."""
    if not points:
        return ""
    sizes = np.array([float(point.num_processes) for point in points])
    reached = np.array([point.speed_up for point in points])
    lines = [
        Line("reached", sizes, reached, 0, has_dots=True),
        Line("perfect", sizes, sizes / sizes[0], 1),
    ]
    axis = Axis("times as fast", _number, low=0.0)
    return line_plot("Scaling", Axis("processes", is_whole=True), axis, lines)
