"""Answers about bytes on the wire: measured, and predicted by the algorithm."""

import math
from typing import Any

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.summary import Summary
from paceline.report.wording import percent
from paceline.units import count_of, format_bytes, format_seconds

_LOOPBACK = "lo"
MISSING_PROBES = "probes of the interfaces (events/host-*.jsonl), which training writes by itself"


def link_of(summary: Summary) -> float | None:
    """Bits per second: what the user said, else the slowest that an interface said of itself."""
    if summary.options.link_bits_per_second:
        return summary.options.link_bits_per_second
    known = [use.link_bits_per_second for use in summary.hosts if use.link_bits_per_second]
    return min(known) if known and not _is_loopback(summary) else None


def _is_loopback(summary: Summary) -> bool:
    return bool(summary.hosts) and all(use.interface == _LOOPBACK for use in summary.hosts)


def sent_per_step(summary: Summary) -> float | None:
    """Bytes that one host sent per step, the mean over hosts."""
    known = [u.sent_bytes_per_step for u in summary.hosts if math.isfinite(u.sent_bytes_per_step)]
    return sum(known) / len(known) if known else None


def reduced_per_step(summary: Summary) -> float | None:
    """Bytes that each process gave to the all-reduce of gradients."""
    curves = summary.curves
    known = ~(curves["reduced_bytes"] != curves["reduced_bytes"])
    num_steps = float(curves["num_steps"][known].sum())
    if num_steps:
        return float(curves["reduced_bytes"][known].sum()) / num_steps
    told = summary.facts.get("gradient_bytes")
    return float(told) if isinstance(told, int | float) else None


def predicted_per_step(summary: Summary) -> float | None:
    """Bytes that a ring all-reduce sends from one host per step.

    Each of N processes sends 2 (N-1)/N of the gradients to its neighbour. Neighbours on other
    hosts are one per host; within one host all N go over the loopback interface, which counts them
    all.
    """
    size, gradients = summary.world_size, reduced_per_step(summary)
    if gradients is None or size < 2:
        return None
    per_process = 2 * (size - 1) / size * gradients
    return per_process * size if summary.num_hosts == 1 else per_process


def traffic(summary: Summary) -> Answer:
    ask = QUESTIONS["traffic"]
    if not summary.facts:
        return Answer("traffic", ask, "Not known: no process has begun.", missing="steps")
    if summary.world_size == 1:
        return Answer(
            "traffic", ask, "It does not: one process sends nothing.", {"sent_bytes_per_step": 0}
        )
    measured, predicted = sent_per_step(summary), predicted_per_step(summary)
    ratio = measured / predicted if measured and predicted else math.nan
    figures: dict[str, Any] = {
        "measured_bytes_per_step": measured,
        "predicted_bytes_per_step": predicted,
        "reduced_bytes_per_step": reduced_per_step(summary),
        "world_size": summary.world_size,
        "num_hosts": summary.num_hosts,
    }
    if math.isfinite(ratio):
        figures["ratio"] = ratio
    missing = "" if measured is not None else MISSING_PROBES
    return Answer(
        "traffic",
        ask,
        _traffic_sentence(summary, measured, predicted),
        figures,
        "the interface's own counters between the first and the last step, divided by the steps; "
        "the prediction is that of a ring all-reduce, 2 (N-1)/N of the gradients per process"
        + (", all of which the loopback interface counts" if summary.num_hosts == 1 else ""),
        missing,
    )


def _traffic_sentence(summary: Summary, measured: float | None, predicted: float | None) -> str:
    gradients, size = reduced_per_step(summary), summary.world_size
    if gradients is None or predicted is None:
        return "Not known: the size of the gradients was not recorded."
    where = "through the host's loopback" if summary.num_hosts == 1 else "from each host"
    rule = (
        f"{format_bytes(gradients)} of gradients over {count_of(size, 'process')} make "
        f"{format_bytes(predicted)} a step {where}"
    )
    if measured is None:
        return f"Predicted, not measured: {rule}."
    ratio = measured / predicted
    return (
        f"Every step each host sent {format_bytes(measured)}, {percent(ratio)} of what the "
        f"algorithm says: {rule}.{_why_other(summary, ratio)}{_at_link(summary, measured)}"
    )


def _why_other(summary: Summary, ratio: float) -> str:
    if ratio > 1.2:
        interface = summary.hosts[0].interface or "the interface"
        return f" The rest is other traffic on {interface}: other programs, evaluation or data."
    if ratio < 0.8:
        return " It is less than that, so the exchange is not a plain ring of whole gradients."
    return ""


def _at_link(summary: Summary, measured: float) -> str:
    link = link_of(summary)
    if not link or not summary.verdict.step_seconds:
        return ""
    seconds = 8 * measured / link
    return (
        f" The link alone needs {format_seconds(seconds)} for that, the step takes "
        f"{format_seconds(summary.verdict.step_seconds)}."
    )
