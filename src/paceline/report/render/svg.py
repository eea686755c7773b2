"""Plots as SVG text: axes with round numbers, units, and a tooltip on every mark. No run is known.

Colours are classes (`c0` to `c9` for lines, `b0` to `b9` for areas, `axis`, `grid`), so the page
decides how they look in the dark.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from paceline.units import count_of

Numbers = NDArray[np.float64]

WIDTH, HEIGHT = 480, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 26, 16, 40
_MOST_MARKS = 80


@dataclass(frozen=True)
class Line:
    name: str
    xs: Numbers
    ys: Numbers
    colour: int = 0
    has_dots: bool = False


@dataclass(frozen=True)
class Axis:
    label: str
    shown: Callable[[float], str] = field(default=lambda value: f"{value:g}")
    low: float | None = None
    high: float | None = None
    """Where the axis begins and ends; None follows the data."""
    is_whole: bool = False
    """It counts things, so half of one is no tick."""

    def ticks(self, low: float, high: float) -> list[float]:
        found = nice_ticks(low, high)
        return [tick for tick in found if float(tick).is_integer()] if self.is_whole else found


@dataclass(frozen=True)
class Frame:
    """Where data lies in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        span = (self.x_high - self.x_low) or 1.0
        return _LEFT + (value - self.x_low) / span * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        span = (self.y_high - self.y_low) or 1.0
        return HEIGHT - _BOTTOM - (value - self.y_low) / span * (HEIGHT - _TOP - _BOTTOM)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2, 2.5 or 5 times a power of ten) that span the range."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    pace = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first = math.ceil(low / pace - 1e-9)
    last = math.floor(high / pace + 1e-9)
    return [round(number * pace, 12) for number in range(first, last + 1)]


def line_plot(title: str, x_axis: Axis, y_axis: Axis, lines: Sequence[Line]) -> str:
    """Nothing for a plot without a point."""
    known = [_finite(line) for line in lines]
    known = [line for line in known if len(line.xs)]
    if not known:
        return ""
    frame = _frame_of(known, y_axis)
    body = _grid(frame, x_axis, y_axis)
    for line in known:
        body += _path(line, frame) + _marks(line, frame, x_axis, y_axis)
    return _picture(title, body, [(line.name, f"b{line.colour}") for line in known])


def _finite(line: Line) -> Line:
    keep = np.isfinite(line.xs) & np.isfinite(line.ys)
    return Line(line.name, line.xs[keep], line.ys[keep], line.colour, line.has_dots)


def _frame_of(lines: Sequence[Line], axis: Axis) -> Frame:
    ys = np.concatenate([line.ys for line in lines])
    xs = np.concatenate([line.xs for line in lines])
    low, high = float(ys.min()), float(ys.max())
    # Zero belongs to the picture unless the curve lives far from it.
    low = 0.0 if 0 <= low < 0.5 * high else low
    low = min(low, axis.low) if axis.low is not None else low
    pad = 0.05 * ((high - low) or abs(high) or 1.0)
    if axis.high is not None:
        high, pad = max(high, axis.high), 0.0
    left = 0.0 if xs.min() >= 0 else float(xs.min())
    return Frame(left, float(xs.max()) or 1.0, low if low == 0 else low - pad, high + pad)


def _path(line: Line, frame: Frame) -> str:
    points = " ".join(
        f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True)
    )
    return f'<polyline class="line c{line.colour}" points="{points}"/>'


def _marks(line: Line, frame: Frame, x_axis: Axis, y_axis: Axis) -> str:
    """Invisible discs (or dots) that carry the tooltips; the lowest and the highest have one."""
    count = len(line.xs)
    spread = np.linspace(0, count - 1, min(count, _MOST_MARKS)).astype(int)
    picked = np.unique([*spread, np.argmin(line.ys), np.argmax(line.ys)])
    kind = f"dot c{line.colour}" if line.has_dots and count <= _MOST_MARKS else "touch"
    radius = 3.2 if kind != "touch" else 8
    return "".join(
        f'<circle class="{kind}" cx="{frame.x(line.xs[i]):.1f}" cy="{frame.y(line.ys[i]):.1f}" '
        f'r="{radius}"><title>{escape(line.name)}: {escape(y_axis.shown(float(line.ys[i])))} '
        f"at {escape(x_axis.label)} {escape(x_axis.shown(float(line.xs[i])))}</title></circle>"
        for i in picked
    )


def _grid(frame: Frame, x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    for value in y_axis.ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(y_axis.shown(value))}</text>"
        )
    for value in x_axis.ticks(frame.x_low, frame.x_high):
        x = frame.x(value)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - _BOTTOM}" '
            f'y2="{HEIGHT - _BOTTOM + 4}"/><text class="tick" x="{x:.1f}" '
            f'y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">{escape(x_axis.shown(value))}</text>'
        )
    bottom = HEIGHT - _BOTTOM
    parts.append(
        f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        f'<text class="label" x="{(WIDTH + _LEFT) / 2:.0f}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x_axis.label)}</text>'
        f'<text class="label" x="{_LEFT - 6}" y="10" text-anchor="start">'
        f"{escape(y_axis.label)}</text>"
    )
    return "".join(parts)


def _picture(title: str, body: str, names: Sequence[tuple[str, str]]) -> str:
    """`names` are those of the key, each with its class."""
    keys = "".join(
        f'<span class="key"><i class="{paint}"></i>{escape(name)}</span>' for name, paint in names
    )
    keys = f"<div class=keys>{keys}</div>" if len(names) > 1 else ""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{keys}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{body}</svg></figure>"
    )


def histogram(title: str, x_axis: Axis, values: Numbers, num_bins: int = 40) -> str:
    """The slowest 1 % share the last bar, or they would leave no room for the others."""
    known = values[np.isfinite(values)]
    if not len(known):
        return ""
    low, high = float(known.min()), float(np.percentile(known, 99))
    high = high if high > low else low + max(abs(low) * 0.1, 1e-9)
    counts, edges = np.histogram(np.minimum(known, high), bins=num_bins, range=(low, high))
    frame = Frame(low, high, 0.0, 1.05 * float(counts.max()))
    bars = "".join(
        _bar(
            frame,
            float(edges[i]),
            float(edges[i + 1]),
            (0.0, float(counts[i])),
            "b0",
            f"{count_of(int(counts[i]), 'step')} from {x_axis.shown(float(edges[i]))} to "
            f"{x_axis.shown(float(edges[i + 1]))}" + (" or more" if i == num_bins - 1 else ""),
        )
        for i in range(num_bins)
        if counts[i]
    )
    grid = _grid(frame, x_axis, Axis("steps", lambda value: f"{value:,.0f}", is_whole=True))
    return _picture(title, grid + bars, [("steps", "b0")])


def _bar(
    frame: Frame, left: float, right: float, span: tuple[float, float], paint: str, told: str
) -> str:
    x, y = frame.x(left), frame.y(span[1])
    width = max(frame.x(right) - x - 0.6, 0.6)
    height = max(frame.y(span[0]) - y, 0.0)
    return (
        f'<rect class="{paint}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}"><title>{escape(told)}</title></rect>'
    )


@dataclass(frozen=True)
class Layer:
    name: str
    values: Numbers
    paint: str
    """The class of its bars."""


def stacked(title: str, x_axis: Axis, y_axis: Axis, edges: Numbers, layers: Sequence[Layer]) -> str:
    """Bars of layers upon each other; `edges` has one value more than each layer."""
    whole = sum(float(np.nansum(layer.values)) for layer in layers)
    shown = [layer for layer in layers if np.nansum(layer.values) > 0.002 * whole]
    if not shown or len(edges) < 2:
        return ""
    total = np.sum([np.nan_to_num(layer.values) for layer in shown], axis=0)
    frame = Frame(float(edges[0]), float(edges[-1]), 0.0, 1.03 * float(total.max()))
    bars, bottoms = "", np.zeros(len(edges) - 1)
    for layer in shown:
        tops = bottoms + np.nan_to_num(layer.values)
        bars += "".join(
            _bar(
                frame,
                float(edges[i]),
                float(edges[i + 1]),
                (bottoms[i], tops[i]),
                layer.paint,
                f"{layer.name}: {y_axis.shown(float(layer.values[i]))} up to {x_axis.label} "
                f"{x_axis.shown(float(edges[i + 1]))}",
            )
            for i in range(len(tops))
            if tops[i] > bottoms[i]
        )
        bottoms = tops
    names = [(layer.name, layer.paint) for layer in shown]
    return _picture(title, _grid(frame, x_axis, y_axis) + bars, names)
