"""A plan as text, JSON and a page with a plot."""

import json
from dataclasses import asdict
from html import escape
from typing import Any

import numpy as np

from paceline.pace.exchange import Size
from paceline.pace.predict import Prediction, Range
from paceline.plan.plan import Plan
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK, OPTIMIZER
from paceline.report.render.style import page
from paceline.report.render.svg import Axis, Line, line_plot
from paceline.units import count_of, format_bits, format_bytes, format_seconds, percent, plural

_PHASES = (INPUT, COMPUTE, NETWORK, OPTIMIZER, CHECKPOINT)


def as_text(plan: Plan) -> str:
    lines = [_heading(plan), "", *_table(plan), "", *_conclusions(plan), "", *_sources(plan)]
    return "\n".join(lines)


def _heading(plan: Plan) -> str:
    job = plan.job
    batch = f"{job.units_per_step:,.0f} {plural(job.unit)} a step"
    gradients = (
        f", {format_bytes(job.gradient_bytes.value)} of gradients" if job.gradient_bytes else ""
    )
    grows = ", so much more the more processes there are" if job.grows_with_world else ""
    where = f" on {plan.instance.name}" if plan.instance else ""
    return f"plan for {job.named}{where}: {batch}{grows}{gradients}; links of {_link(plan)}"


def _link(plan: Plan) -> str:
    return format_bits(plan.link.bits_per_second.value)


def _table(plan: Plan) -> list[str]:
    unit = f"{plural(plan.job.unit)}/s"
    titles = ["hosts", "step (90 %)", *_PHASES, unit, "speed-up", "efficiency"]
    titles += ["sent", "bottleneck"]
    has_total = any(one.total_seconds for one in plan.predictions)
    has_cost = any(one.cost for one in plan.predictions)
    titles += ["to the end"] if has_total else []
    titles += ["cost"] if has_cost else []
    rows = [_row(one, has_total, has_cost) for one in plan.predictions if not one.why_not]
    widths = [max(len(row[n]) for row in [titles, *rows]) for n in range(len(titles))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [titles, *rows]
    ]


def _row(one: Prediction, has_total: bool, has_cost: bool) -> list[str]:
    cells = [
        _size(one.size),
        _range(one.step_seconds),
        *(format_seconds(one.phases[phase]) for phase in _PHASES),
        _rate(one.units_per_second.middle),
        f"{one.speed_up.middle:.2f}",
        percent(one.efficiency),
        format_bytes(one.sent_bytes_per_step),
        one.bottleneck,
    ]
    cells += [format_seconds(one.total_seconds.middle) if one.total_seconds else ""] * has_total
    cells += [
        f"{one.cost.middle:,.2f} ({one.cost.low:,.2f} to {one.cost.high:,.2f})" if one.cost else ""
    ] * has_cost
    return cells


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _size(size: Size) -> str:
    return f"{size.hosts:,}" if size.devices == 1 else f"{size.hosts:,} x {size.devices}"


def _range(value: Range) -> str:
    low, high = format_seconds(value.low), format_seconds(value.high)
    return f"{format_seconds(value.middle)} ({low} to {high})"


def _conclusions(plan: Plan) -> list[str]:
    lines = [
        f"{_size(one.size)} hosts cannot train it: {one.why_not}."
        for one in plan.predictions
        if one.why_not
    ]
    if plan.most_useful_hosts is not None:
        lines.append(_waste(plan.most_useful_hosts))
    slower = [one for one in plan.predictions if one.size.hosts > 1 and one.speed_up.middle < 1]
    if slower:
        sizes = ", ".join(_size(one.size) for one in slower)
        lines.append(f"{sizes} hosts are slower than one.")
    for remedy in plan.remedies:
        gain = remedy.gain
        lines.append(
            f"would help {_at(plan.largest)}: {remedy.text}: "
            f"{gain.middle:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f})"
        )
    if plan.job.checkpoint_bytes:
        lines.append(f"a checkpoint has {format_bytes(plan.job.checkpoint_bytes)}")
    return [*lines, *plan.notes]


def _at(size: Size | None) -> str:
    return f"on {_size(size)} hosts" if size and size.hosts > 1 else "on one host"


def _waste(most: int) -> str:
    if most == 1:
        return "More than one host is waste: a second one adds less than a quarter of a host."
    return (
        f"Beyond {count_of(most, 'host')} another is waste: it adds less than a quarter of a host "
        "to the speed."
    )


def _sources(plan: Plan) -> list[str]:
    """Where every figure is from: a prediction is as good as they are."""
    job, link = plan.job, plan.link
    figures: dict[str, Any] = {
        f"compute, per {job.unit} and process": (job.compute, format_seconds(job.compute.value)),
        "update of the weights": (job.update, format_seconds(job.update.value)),
        "link": (link.bits_per_second, format_bits(link.bits_per_second.value)),
        "latency": (link.latency_seconds, format_seconds(link.latency_seconds.value)),
        "copying of a byte that is sent": (
            job.exchange.copying,
            f"{1e9 * job.exchange.copying.value:.2g} ns",
        ),
        "spread of a process's step": (job.jitter, percent(job.jitter.value)),
        "waiting, as a multiple of the formulas": (job.network, f"{job.network.value:.2f}"),
    }
    if job.gradient_bytes:
        figures["gradients"] = (job.gradient_bytes, format_bytes(job.gradient_bytes.value))
    if job.input_rate:
        rate = f"{job.input_rate.value:,.0f} {plural(job.unit)}/s"
        figures["loader of one process"] = (job.input_rate, rate)
    width = max(len(name) for name in figures)
    return ["from:"] + [
        f"  {name.ljust(width)}  {shown}  ({figure.source}; +-{figure.spread:.0%})"
        for name, (figure, shown) in figures.items()
    ]


def as_json(plan: Plan) -> str:
    return json.dumps(asdict(plan), indent=2) + "\n"


def as_html(plan: Plan) -> str:
    able = [one for one in plan.predictions if not one.why_not]
    hosts = np.array([one.size.hosts for one in able], dtype=float)
    lines = [
        Line("predicted", hosts, np.array([one.speed_up.middle for one in able]), 1, True),
        Line("9 of 10 times above", hosts, np.array([one.speed_up.low for one in able]), 2, False),
        Line("9 of 10 times below", hosts, np.array([one.speed_up.high for one in able]), 2, False),
        Line("perfect", hosts, hosts / max(hosts[0], 1.0) if len(hosts) else hosts, 3, False),
    ]
    plot = line_plot("Speed-up", Axis("hosts"), Axis("times one host"), lines)
    return page(f"Plan for {plan.job.named}", f"{plot}<pre>{escape(as_text(plan))}</pre>")
