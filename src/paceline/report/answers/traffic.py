"""Answers about bytes on the wire: measured, and predicted by the algorithm."""

import math
from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import GIVE_LINK
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import (
    is_inside_one_host,
    is_link_impossible,
    link_of,
    predicted_per_step,
    seconds_on_link,
    sent_per_step,
)
from paceline.units import count_of, format_bits, format_bytes, format_seconds, percent

MISSING_PROBES = "probes of the interfaces (events/host-*.jsonl), which training writes by itself"
_EXPLAINS = 0.5
"""Of the step, that the link must take before it is said to explain the step's length."""


def traffic(facts: Facts) -> Answer:
    ask = QUESTIONS["traffic"]
    if facts.is_own and not facts.begin:
        return Answer("traffic", ask, "Not known: no process has begun.", missing="steps")
    if facts.world.size == 1:
        sentence = "Not at all: one process sends nothing."
        return Answer("traffic", ask, sentence, {"sent_bytes_per_step": 0})
    if is_inside_one_host(facts):
        return _inside_one_host(facts)
    return _recorded(facts) if facts.is_own else _of_log(facts)


def _inside_one_host(facts: Facts) -> Answer:
    gradients, size = facts.world.gradient_bytes, facts.world.size
    reduced = f" {format_bytes(gradients)} of gradients a step" if gradients else ""
    sentence = (
        f"Inside one host: not on a network. {count_of(size or 0, 'process')} exchange"
        f"{reduced} between the devices, directly or through shared memory (NCCL), and no "
        "interface counts that."
    )
    figures = {"sent_bytes_per_step": 0, "reduced_bytes_per_step": gradients, "world_size": size}
    return Answer("traffic", QUESTIONS["traffic"], sentence, figures)


def _recorded(facts: Facts) -> Answer:
    world, measured, predicted = facts.world, sent_per_step(facts), predicted_per_step(facts)
    figures: dict[str, Any] = {
        "measured_bytes_per_step": measured,
        "predicted_bytes_per_step": predicted,
        "reduced_bytes_per_step": world.gradient_bytes,
        "world_size": world.size,
        "num_hosts": world.num_hosts,
    }
    if measured and predicted:
        figures["ratio"] = measured / predicted
    return Answer(
        "traffic",
        QUESTIONS["traffic"],
        _recorded_sentence(facts, measured, predicted),
        figures,
        "the interface's own counters between the first and the last step, divided by the steps; "
        "the prediction is that of a ring all-reduce, 2 (N-1)/N of the gradients per process"
        + (", all of which the loopback interface counts" if world.num_hosts == 1 else ""),
        "" if measured is not None else MISSING_PROBES,
    )


def _recorded_sentence(facts: Facts, measured: float | None, predicted: float | None) -> str:
    gradients, size = facts.world.gradient_bytes, facts.world.size or 1
    if gradients is None or predicted is None:
        return "Not known: the size of the gradients was not recorded."
    is_one = facts.world.num_hosts == 1
    where = "through the host's loopback interface" if is_one else "from each host"
    every = facts.begin.get("exchanged_every")
    what = f"weights (exchanged once in {every} steps)" if every else "gradients"
    rule = (
        f"{format_bytes(gradients)} of {what} in {count_of(size, 'process')} make "
        f"{format_bytes(predicted)} a step {where}"
    )
    if measured is None:
        return f"Predicted, not measured: {rule}."
    ratio = measured / predicted if predicted else math.nan
    return (
        f"In every step each host sent {format_bytes(measured)}, {percent(ratio)} of what a ring "
        f"all-reduce needs: {rule}.{_why_other(facts, ratio)}{_at_link(facts, measured)}"
    )


def _why_other(facts: Facts, ratio: float) -> str:
    if ratio > 1.2:
        interface = facts.world.hosts[0].interface or "the interface"
        return f" The rest is other traffic on {interface}: other programs, evaluation or data."
    if ratio < 0.8:
        return " It is less than that, so gradients are not exchanged by a simple ring."
    return ""


def _at_link(facts: Facts, measured: float) -> str:
    link = link_of(facts)
    if not link or not facts.verdict.step_seconds or is_link_impossible(facts):
        return ""
    seconds = 8 * measured / link
    return (
        f" The link alone needs {format_seconds(seconds)} for that, the step takes "
        f"{format_seconds(facts.verdict.step_seconds)}."
    )


def why_no_ring(facts: Facts) -> str:
    size = facts.world.size
    if size and facts.world.num_hosts == 1:
        return f"All {size} processes ran on one host, so no gradients crossed a network."
    if size is None:
        return "The log does not tell how many processes trained, so traffic cannot be predicted."
    if facts.world.gradient_bytes is None:
        return "The log does not tell how many parameters the model has."
    return "The log does not tell how long a step took."


def missing_for_ring(facts: Facts) -> str:
    if facts.world.num_hosts == 1:
        return ""
    lacking = [
        name
        for name, value in (
            ("processes", facts.world.size),
            ("parameters", facts.world.gradient_bytes),
        )
        if not value
    ]
    if not lacking:
        return "a time per step"
    return f"the number of {' and of '.join(lacking)}; `paceline train` records both, and the bytes"


def _of_log(facts: Facts) -> Answer:
    """No log counts bytes; what a ring must send follows from parameters and processes."""
    ask, sent, world = QUESTIONS["traffic"], predicted_per_step(facts), facts.world
    measured = sent_per_step(facts)
    if measured is not None:
        return _counted(facts, measured, sent)
    if sent is None or world.gradient_bytes is None or world.num_hosts == 1:
        return Answer("traffic", ask, why_no_ring(facts), missing=missing_for_ring(facts))
    step_seconds = facts.verdict.step_seconds
    figures: dict[str, Any] = {
        "world": world.size,
        "num_hosts": world.num_hosts,
        "num_parameters": facts.num_parameters,
        "gradient_bytes": world.gradient_bytes,
        "predicted_bytes_per_step": sent,
        "step_seconds": step_seconds or None,
    }
    size = world.size or 1
    sentence = (
        f"A ring all-reduce over {size} processes sends 2 x {size - 1}/{size} of the "
        f"{format_bytes(world.gradient_bytes)} of gradients ({world.gradient_parts}), "
        f"{format_bytes(sent)}, through each host's link in every step"
    )
    missing = "bytes that were really sent: no interface was watched; `paceline train` counts them"
    if step_seconds:
        told, more = _against_the_step(facts, sent, step_seconds)
        figures |= more
        sentence += told
        missing = missing if link_of(facts) else f"{GIVE_LINK}; and {missing}"
    how = f"2(N-1)/N of the gradients; N from {world.how}; {world.gradient_how}"
    return Answer("traffic", ask, f"{sentence}.", figures, how, missing)


def _counted(facts: Facts, measured: float, predicted: float | None) -> Answer:
    """What a tool that watched the interfaces saw while a foreign run trained."""
    step_seconds = facts.verdict.step_seconds
    figures: dict[str, Any] = {
        "measured_bytes_per_step": measured,
        "predicted_bytes_per_step": predicted,
        "sent_bytes_per_second": measured / step_seconds if step_seconds else None,
    }
    speed = f" ({format_bits(8 * measured / step_seconds)})" if step_seconds else ""
    sentence = (
        f"In every step of {format_seconds(step_seconds)} each host sent {format_bytes(measured)}"
        f"{speed}"
    )
    if predicted:
        figures["ratio"] = measured / predicted
        sentence += (
            f", {percent(measured / predicted)} of the {format_bytes(predicted)} that a ring "
            "all-reduce needs"
        )
    how = f"the interfaces' counters, times the length of a step; {facts.world.traffic_how}"
    return Answer("traffic", QUESTIONS["traffic"], f"{sentence}.", figures, how)


def _against_the_step(facts: Facts, sent: float, step_seconds: float) -> tuple[str, dict[str, Any]]:
    slowest_link = 8 * sent / step_seconds
    figures: dict[str, Any] = {"slowest_link_bits_per_second": slowest_link}
    link, seconds = link_of(facts), seconds_on_link(facts)
    if not link or seconds is None:
        return (
            f"; if the whole step of {format_seconds(step_seconds)} were that, the link would "
            f"carry {format_bits(slowest_link)}, and it cannot have been slower"
        ), figures
    share = seconds / step_seconds
    is_impossible = is_link_impossible(facts)
    figures |= {"link_bits_per_second": link, "predicted_network_seconds": seconds}
    figures["explained_share"] = None if is_impossible else min(share, 1.0)
    took = f"; at {format_bits(link)} that takes {format_seconds(seconds)}"
    step = f"the {format_seconds(step_seconds)} of a step"
    if is_impossible:
        told = f"{took}, more than {step}: the link must be faster than {format_bits(link)}"
    elif share >= _EXPLAINS:
        told = (
            f"{took} of {step}: the ring all-reduce explains {percent(min(share, 1))} of the step "
            "time"
        )
    else:
        told = (
            f"{took}, only {percent(share)} of {step}: on such a link the ring all-reduce does not "
            f"explain the step time, on one of {format_bits(slowest_link)} it would"
        )
    return told, figures
