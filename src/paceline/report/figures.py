"""Which plots a run has: its curves brought into the shape that `plots` draws."""

import math

import numpy as np
from numpy.typing import NDArray

from paceline.record.schema import PHASES
from paceline.report.answers_training import series
from paceline.report.plots import Axis, Layer, Line, histogram, line_plot, stacked
from paceline.report.scaling import RunCurve
from paceline.report.summary import Summary
from paceline.report.trend import in_groups
from paceline.report.verdict import LOOP

Numbers = NDArray[np.float64]

_MOST_POINTS = 300
_MOST_BARS = 60


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e4 else f"{value:,.0f}"


_STEP = Axis("step", _count)


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


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def all_plots(summary: Summary) -> list[str]:
    found = [
        loss(summary),
        score(summary),
        rate(summary),
        step_histogram(summary),
        phases(summary),
        traffic(summary),
        busy(summary),
    ]
    return [plot for plot in found if plot]


def loss(summary: Summary) -> str:
    steps, values = in_groups(summary.curves["step"], summary.curves["loss"], _MOST_POINTS)
    lines = [Line("training loss, as it trains", steps, values, 0)]
    for name, scores, colour in (
        ("validation", summary.scores, 1),
        ("training data, scored like validation", summary.train_scores, 2),
    ):
        xs, ys = series(scores, "loss")
        lines.append(Line(name, xs, ys, colour, has_dots=True))
    return line_plot("Loss", _STEP, Axis("loss", lambda value: f"{value:.4g}"), lines)


def score(summary: Summary) -> str:
    by = summary.best_by
    lines = []
    for name, scores, colour in (
        ("validation", summary.scores, 1),
        ("training data", summary.train_scores, 2),
    ):
        xs, ys = series(scores, by)
        lines.append(Line(f"{by}, {name}", xs, ys, colour, has_dots=True))
    return line_plot(f"Score ({by})", _STEP, Axis(by, lambda value: f"{value:.4g}"), lines)


def rate(summary: Summary) -> str:
    steps, values = in_groups(summary.curves["step"], summary.curves["rate"], _MOST_POINTS)
    lines = [Line("learning rate", steps, values, 3)]
    return line_plot(
        "Learning rate", _STEP, Axis("rate", lambda value: f"{value:.3g}", low=0.0), lines
    )


def step_histogram(summary: Summary) -> str:
    seconds = summary.curves.step_seconds.astype(np.float64)
    axis = _seconds_axis("duration of a step", float(np.median(seconds)) if len(seconds) else 0.0)
    return histogram("How long steps took", axis, seconds)


def phases(summary: Summary) -> str:
    """Seconds per step, the mean over all processes, along the run."""
    times = summary.times
    count = len(times.num_steps)
    if not count:
        return ""
    mean = np.nanmean(times.seconds, axis=0)
    group = math.ceil(count / _MOST_BARS)
    cuts = np.arange(0, count, group)
    weights = np.add.reduceat(times.num_steps, cuts)
    first = max(float(times.last_steps[0] - times.num_steps[0]), 0.0)
    edges = np.array([first, *times.last_steps[[*(cuts[1:] - 1), count - 1]]])
    layers = [
        Layer(name, np.add.reduceat(mean[:, n] * times.num_steps, cuts) / weights, n)
        for n, name in enumerate(PHASES)
        if name in (*LOOP, "evaluate")
    ]
    axis = _seconds_axis("time per step", float(np.median(mean.sum(axis=1))))
    return stacked("Phases over time", _STEP, axis, edges, layers)


def traffic(summary: Summary) -> str:
    lines = [
        Line(f"{use.host} {way} ({use.interface})", 60 * use.series.hours, values, 2 * n + shift)
        for n, use in enumerate(summary.hosts[:4])
        for way, shift, values in (
            ("sends", 0, use.series.sent_bytes_per_second),
            ("receives", 1, use.series.received_bytes_per_second),
        )
    ]
    highest = max((float(np.nanmax(line.ys)) for line in lines if line.ys.any()), default=0.0)
    axis = _bytes_axis(highest)
    return line_plot("Traffic of each host", _MINUTES, axis, lines)


_MINUTES = Axis("minutes", lambda value: f"{value:.4g}")


def busy(summary: Summary) -> str:
    lines = []
    for n, use in enumerate(summary.hosts[:5]):
        minutes = 60 * use.series.hours
        lines.append(Line(f"{use.host} cores", minutes, use.series.cpu_share, 2 * n))
        lines.append(Line(f"{use.host} devices", minutes, use.series.device_share, 2 * n + 1))
    return line_plot(
        "Utilisation of each host", _MINUTES, Axis("busy", _share, low=0.0, high=1.0), lines
    )


def compared_loss(curves: list[RunCurve]) -> str:
    lines = [Line(c.run, c.minutes, c.loss, n) for n, c in enumerate(curves[:10])]
    axis = Axis("loss", lambda value: f"{value:.4g}")
    return line_plot("Loss over time", _MINUTES, axis, lines)


def compared_score(curves: list[RunCurve]) -> str:
    lines = [
        Line(c.run, c.score_minutes, c.score, n, has_dots=True) for n, c in enumerate(curves[:10])
    ]
    axis = Axis("score", lambda value: f"{value:.4g}")
    return line_plot("Score over time", _MINUTES, axis, lines)
