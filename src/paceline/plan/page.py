"""A plan as a page: what more hosts bring, where a step's time goes, and the tables."""

from html import escape

import numpy as np

from paceline.pace.predict import Prediction
from paceline.plan.plan import Plan
from paceline.plan.render import (
    PHASES,
    Rows,
    able,
    conclusions,
    heading,
    source_rows,
    step_rows,
    whole_rows,
)
from paceline.report.render.style import page, phase_class
from paceline.report.render.svg import Axis, Layer, Line, line_plot, stacked
from paceline.units import format_seconds


def as_html(plan: Plan) -> str:
    found = able(plan)
    plots = "".join([_speed(found), _phases(found)])
    told = "".join(f"<li>{escape(line)}</li>" for line in conclusions(plan))
    body = (
        f"<header><h1>{escape(f'Plan for {plan.job.named}')}</h1>"
        f"<p class=soft>{escape(heading(plan))}</p></header>"
        f"<div class=plots>{plots}</div>"
        f"<h2>A step</h2>{_table(step_rows(plan))}"
        f"<h2>The training</h2>{_table(whole_rows(plan))}"
        f"<h2>What follows</h2><ul>{told}</ul>"
        f"<h2>Where the figures are from</h2>{_table(source_rows(plan), has_head=False)}"
    )
    return page(escape(f"Plan for {plan.job.named}"), body)


def _speed(found: list[Prediction]) -> str:
    """Predicted with its interval, and what perfect scaling would be."""
    hosts = np.array([one.size.hosts for one in found], dtype=float)
    middle, low, high = (
        np.array([getattr(one.speed_up, name) for one in found])
        for name in ("middle", "low", "high")
    )
    lines = [
        Line("predicted", hosts, middle, 1, True),
        Line("19 of 20 times below", hosts, high, 2, False),
        Line("19 of 20 times above", hosts, low, 2, False),
        Line("perfect scaling", hosts, hosts, 3, False),
    ]
    x_axis = Axis("hosts", is_whole=True)
    return line_plot("What more hosts bring", x_axis, Axis("times one host"), lines)


def _phases(found: list[Prediction]) -> str:
    """One bar for each size, however far apart the numbers are; its name is below its middle."""
    edges = np.arange(len(found) + 1, dtype=np.float64) - 0.5

    def name(place: float) -> str:
        near = min(max(round(place), 0), len(found) - 1)
        return f"{found[near].size.hosts:,}"

    layers = [
        Layer(phase, np.array([one.phases[phase] for one in found]), phase_class(phase))
        for phase in PHASES
    ]
    x_axis = Axis("hosts", shown=name, is_whole=True)
    y_axis = Axis("seconds of a step", shown=format_seconds)
    return stacked("Where a step's time goes", x_axis, y_axis, edges, layers)


def _table(rows: Rows, has_head: bool = True) -> str:
    head, *rest = rows if has_head else [[], *rows]
    titles = "".join(f"<th class=n>{escape(cell)}</th>" for cell in head)
    body = "".join(_row(row, has_head) for row in rest)
    return f"<div class=scroll><table><tr>{titles}</tr>{body}</table></div>"


def _row(row: list[str], is_of_numbers: bool) -> str:
    kinds = ["n"] * len(row) if is_of_numbers else ["", "n", "soft"]
    cells = zip(row, kinds, strict=True)
    inner = "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell, kind in cells)
    return f"<tr>{inner}</tr>"
