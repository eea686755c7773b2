"""A plan as text and as JSON; the page with plots is `page.py`."""

import json
from dataclasses import dataclass
from typing import Any, Final

from paceline.pace.exchange import Size
from paceline.pace.job import Figure
from paceline.pace.predict import MOST_HOSTS, Prediction, Range
from paceline.pace.remedies import gain_in_words
from paceline.plan.plan import Plan
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK, OPTIMIZER
from paceline.units import count_of, format_bits, format_bytes, format_seconds, percent, plural

PLAN_VERSION: Final = 1
"""Raised when a field that `plan.schema.json` names goes away or changes its meaning."""
PHASES: Final = (INPUT, COMPUTE, NETWORK, OPTIMIZER, CHECKPOINT)

Rows = list[list[str]]


def as_text(plan: Plan) -> str:
    parts = [
        heading(plan),
        *[_aligned(rows) for rows in (step_rows(plan), whole_rows(plan))],
        "\n".join(conclusions(plan)),
        "\n".join(["from:", *(f"  {line}" for line in _aligned(source_rows(plan)).splitlines())]),
    ]
    return "\n\n".join(parts)


def heading(plan: Plan) -> str:
    job = plan.job
    batch = f"{job.units_per_step:,.0f} {plural(job.unit)} a step"
    gradients = (
        f", {format_bytes(job.gradient_bytes.value)} of gradients" if job.gradient_bytes else ""
    )
    if job.grows_with_world:
        batch += f" of {count_of(job.measured_processes, 'process')}, more with more of them"
    where = f" on {plan.instance.name}" if plan.instance else ""
    link = format_bits(plan.link.bits_per_second.value)
    return f"plan for {job.named}{where}: {batch}{gradients}; links of {link}"


def _aligned(rows: Rows) -> str:
    """The last column, which may be long, to the left; all others to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == len(row) - 1 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def able(plan: Plan) -> list[Prediction]:
    return [one for one in plan.predictions if not one.why_not]


def step_rows(plan: Plan) -> Rows:
    """Of a step: how long, and by phase."""
    shown = [p for p in PHASES if any(one.phases[p] > 0 for one in able(plan))] or [COMPUTE]
    rows = [[_hosts(plan), "a step (90 %)", *shown, "bottleneck"]]
    for one in able(plan):
        phases = [format_seconds(one.phases[phase]) for phase in shown]
        rows.append([_size(one.size), _seconds(one.step_seconds), *phases, one.bottleneck])
    return rows


def whole_rows(plan: Plan) -> Rows:
    """Of the training: how fast, what is sent, how long, how dear."""
    found = able(plan)
    unit = f"{plural(plan.job.unit)}/s (90 %)"
    titles = [_hosts(plan), unit, "speed-up", "efficiency", "sent a step", "link busy"]
    has_total = any(one.total_seconds for one in found)
    has_cost = any(one.cost for one in found)
    titles += ["to the end (90 %)"] * has_total + ["cost (90 %)"] * has_cost
    rows = [titles]
    for one in found:
        row = [
            _size(one.size),
            _rates(one.units_per_second),
            f"{one.speed_up.middle:.2f}",
            percent(one.efficiency),
            format_bytes(one.sent_bytes_per_step) if one.sent_bytes_per_step else "-",
            percent(one.link_share) if one.sent_bytes_per_step else "-",
        ]
        row += [_seconds(one.total_seconds) if one.total_seconds else ""] * has_total
        row += [_money(one.cost) if one.cost else ""] * has_cost
        rows.append(row)
    return rows


def _hosts(plan: Plan) -> str:
    """What `2 x 8` is."""
    several = any(one.size.devices > 1 for one in plan.predictions)
    return "hosts x processes" if several else "hosts"


def _rates(value: Range) -> str:
    shown = [f"{n:,.0f}" if n >= 100 else f"{n:.3g}" for n in (value.middle, value.low, value.high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def _money(value: Range) -> str:
    return f"{value.middle:,.2f} ({value.low:,.2f} to {value.high:,.2f})"


def _size(size: Size) -> str:
    return f"{size.hosts:,}" if size.devices == 1 else f"{size.hosts:,} x {size.devices}"


def _seconds(value: Range) -> str:
    low, high = format_seconds(value.low), format_seconds(value.high)
    return f"{format_seconds(value.middle)} ({low} to {high})"


def conclusions(plan: Plan) -> list[str]:
    lines = [
        f"{_size(one.size)} hosts cannot train it: {one.why_not}."
        for one in plan.predictions
        if one.why_not
    ]
    if plan.most_useful_hosts is not None:
        lines.append(_waste(plan.most_useful_hosts))
    slower = [one for one in able(plan) if one.size.hosts > 1 and one.speed_up.middle < 1]
    if slower:
        sizes = ", ".join(_size(one.size) for one in slower)
        lines.append(f"{sizes} hosts are slower than one.")
    lines += [
        f"would help {_at(plan.largest)}: {remedy.text}: {gain_in_words(remedy.gain)}"
        for remedy in plan.remedies
    ]
    return [*lines, *_memory(plan), *_checkpoint(plan), *_burst(plan), *plan.notes]


def _at(size: Size | None) -> str:
    return f"on {_size(size)} hosts" if size and size.hosts > 1 else "on one host"


def _waste(most: int) -> str:
    if most == 1:
        return "More than one host is waste: a second one adds less than a quarter of a host."
    if most == MOST_HOSTS:
        return f"Up to {most:,} hosts each adds at least a quarter of a host to the speed."
    return (
        f"Beyond {count_of(most, 'host')} another is waste: it adds less than a quarter of a host "
        "to the speed."
    )


def _memory(plan: Plan) -> list[str]:
    memory = plan.memory
    if memory is None:
        return []
    there = memory.there_bytes
    room = f" of the {format_bytes(there)} that there are" if there else ""
    fits = {None: "", True: ": it fits", False: ": it does not fit comfortably"}[memory.fits]
    smaller = f"; batch.micro={memory.micro_that_fits} would" if memory.micro_that_fits else ""
    needed = format_bytes(memory.needed_bytes)
    return [f"memory of a process: about {needed}{room}{fits}{smaller} ({memory.how})"]


def _checkpoint(plan: Plan) -> list[str]:
    job, schedule = plan.job, plan.job.schedule
    if not job.checkpoint_bytes:
        return []
    cost = ""
    if schedule is not None and schedule.save_every and schedule.save_seconds:
        cost = (
            f"; a save holds the loop up for {format_seconds(schedule.save_seconds)}, every "
            f"{schedule.save_every:,} steps"
        )
    return [f"a checkpoint has {format_bytes(job.checkpoint_bytes)}{cost}"]


def _burst(plan: Plan) -> list[str]:
    return [
        f"in its first minutes a step on {_size(one.size)} hosts may take "
        f"{format_seconds(one.burst_step_seconds)}"
        for one in able(plan)[-1:]
        if one.burst_step_seconds and one.size.hosts > 1
    ]


@dataclass(frozen=True)
class Source:
    """A figure with who says so: a prediction is as good as they are."""

    name: str
    shown: str
    figure: Figure


def sources(plan: Plan) -> list[Source]:
    job, link = plan.job, plan.link
    found = [
        Source(f"compute, per {job.unit}", format_seconds(job.compute.value), job.compute),
        Source("update of the weights", format_seconds(job.update.value), job.update),
    ]
    if job.gradient_bytes:
        shown = format_bytes(job.gradient_bytes.value)
        found.append(Source("gradients", shown, job.gradient_bytes))
    if job.input_rate:
        rate = f"{job.input_rate.value:,.0f} {plural(job.unit)}/s"
        found.append(Source("loader of one process", rate, job.input_rate))
    if any(one.size.processes > 1 for one in plan.predictions):
        copying = job.exchange.copying
        found += [
            Source("link", format_bits(link.bits_per_second.value), link.bits_per_second),
            Source("latency", format_seconds(link.latency_seconds.value), link.latency_seconds),
            Source("copying of a byte sent", f"{1e9 * copying.value:.2g} ns", copying),
            Source("gradients ready", "", Figure(0.0, 0.0, job.exchange.parts_how)),
            Source("spread of a step", percent(job.jitter.value), job.jitter),
            Source("waiting, against the formulas", f"x {job.network.value:.2f}", job.network),
        ]
    if plan.price:
        price = Figure(plan.price.per_hour, 0.0, plan.price.source)
        found.append(Source("price of an hour", f"{plan.price.per_hour:g}", price))
    return found


def source_rows(plan: Plan) -> Rows:
    rows: Rows = []
    for one in sources(plan):
        doubt = f", +-{one.figure.spread:.0%}" if one.figure.spread else ""
        rows.append([one.name, one.shown, f"({one.figure.source}{doubt})"])
    return rows


def as_json(plan: Plan) -> str:
    return json.dumps(as_document(plan), indent=1, ensure_ascii=False) + "\n"


def as_document(plan: Plan) -> dict[str, Any]:
    job, schedule = plan.job, plan.job.schedule
    return {
        "plan_version": PLAN_VERSION,
        "of": job.named,
        "type": plan.instance.name if plan.instance else None,
        "unit": job.unit,
        "units_per_step": job.units_per_step,
        "batch_grows_with_hosts": job.grows_with_world,
        "gradient_bytes": job.gradient_bytes.value if job.gradient_bytes else None,
        "link_bits_per_second": plan.link.bits_per_second.value,
        "sizes": [_size_document(one) for one in plan.predictions],
        "most_useful_hosts": plan.most_useful_hosts,
        "remedies": [
            {"name": one.name, "text": one.text, "times_as_fast": vars(one.gain)}
            for one in plan.remedies
        ],
        "memory": vars(plan.memory) if plan.memory else None,
        "checkpoint": {
            "bytes": job.checkpoint_bytes,
            "save_seconds": schedule.save_seconds if schedule else None,
            "every_steps": schedule.save_every if schedule else None,
        },
        "price_per_hour": plan.price.per_hour if plan.price else None,
        "figures": [
            {"name": one.name, "value": one.figure.value, "spread": one.figure.spread}
            | {"source": one.figure.source}
            for one in sources(plan)
        ],
        "notes": list(plan.notes),
    }


def _size_document(one: Prediction) -> dict[str, Any]:
    return {
        "hosts": one.size.hosts,
        "devices_per_host": one.size.devices,
        "impossible_because": one.why_not or None,
        "step_seconds": vars(one.step_seconds),
        "phase_seconds": one.phases,
        "units_per_second": vars(one.units_per_second),
        "speed_up": vars(one.speed_up),
        "efficiency": one.efficiency,
        "bottleneck": one.bottleneck,
        "sent_bytes_per_step": one.sent_bytes_per_step,
        "link_seconds_per_step": one.wire_seconds,
        "link_share": one.link_share,
        "burst_step_seconds": one.burst_step_seconds,
        "total_seconds": vars(one.total_seconds) if one.total_seconds else None,
        "cost": vars(one.cost) if one.cost else None,
    }
