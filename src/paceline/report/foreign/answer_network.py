"""Traffic, the network's share of a step, and the verdict, for another tool's run.

No log counts bytes. What a ring all-reduce must send follows from the number of parameters and of
processes; how long it takes, from the speed of the link, which the user gives.
"""

from typing import Any

from paceline.record.schema import COMPUTE, INPUT, NETWORK
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.foreign.ring import (
    Ring,
    network_share,
    ring_of,
    typical_step_seconds,
)
from paceline.report.foreign.run import ForeignRun
from paceline.report.verdict import LEAST_SHARE, UNCLEAR
from paceline.report.wording import bits, percent
from paceline.units import format_bytes, format_seconds

_GIVE_LINK = "the speed of the link between the hosts: give it, e.g. `--link 1Gbit`"
_MORE_WORKERS = (
    "more loader processes (`--workers` in the PyTorch ImageNet example), smaller pictures, a "
    "faster disk; `paceline train imagenet-resnet18` finds in its first steps how many it needs "
    "(`input.workers=8` sets them)"
)


def traffic(run: ForeignRun) -> Answer:
    question = QUESTIONS["traffic"]
    ring, step_seconds = ring_of(run), typical_step_seconds(run)
    if ring is None:
        return Answer("traffic", question, _why_no_ring(run), missing=_missing_for_ring(run))
    figures: dict[str, Any] = {
        "world": ring.world,
        "num_hosts": len(run.hosts) or None,
        "num_parameters": ring.num_parameters,
        "gradient_bytes": ring.gradient_bytes,
        "predicted_bytes_per_step": ring.sent_bytes,
        "step_seconds": step_seconds,
    }
    words = ring.in_words()
    sentence = f"{words[0].upper()}{words[1:]}"
    missing = "bytes that were really sent: no interface was watched; `paceline train` counts them"
    if step_seconds:
        told, more = _against_the_step(run, ring, step_seconds)
        figures |= more
        sentence += told
        if not run.link_bits_per_second:
            missing = f"{_GIVE_LINK}; and {missing}"
    how = f"2(N-1)/N x {ring.bytes_each} x parameters; N from {run.world_how}; {run.gradient_how}"
    return Answer("traffic", question, sentence + ".", figures, how=how, missing=missing)


def _against_the_step(
    run: ForeignRun, ring: Ring, step_seconds: float
) -> tuple[str, dict[str, Any]]:
    slowest_link = 8 * ring.sent_bytes / step_seconds
    figures: dict[str, Any] = {"slowest_link_bits_per_second": slowest_link}
    link = run.link_bits_per_second
    if not link:
        return (
            f"; if the whole step of {format_seconds(step_seconds)} were that, the link would "
            f"carry {bits(slowest_link)}, and it cannot have been slower"
        ), figures
    seconds = ring.seconds(link)
    figures |= {"link_bits_per_second": link, "predicted_network_seconds": seconds}
    figures["explained_share"] = seconds / step_seconds
    took = f"; at {bits(link)} that takes {format_seconds(seconds)}"
    step = f"the {format_seconds(step_seconds)} of a step"
    if seconds > 1.1 * step_seconds:
        return (
            f"{took}, more than {step}: the link must be faster than {bits(link)}",
            figures,
        )
    if seconds >= 0.5 * step_seconds:
        return (
            f"{took} of {step}: the ring all-reduce explains "
            f"{percent(min(seconds / step_seconds, 1))} of the step time"
        ), figures
    return (
        f"{took}, only {percent(seconds / step_seconds)} of {step}: on such a link the ring "
        f"all-reduce does not explain the step time, on one of {bits(slowest_link)} it would"
    ), figures


def _why_no_ring(run: ForeignRun) -> str:
    if run.world == 1:
        return "One process trained, so no gradients crossed a network."
    if run.world and len(run.hosts) == 1:
        return f"All {run.world} processes ran on one host, so no gradients crossed a network."
    if run.world is None:
        return "The log does not tell how many processes trained, so traffic cannot be predicted."
    return "The log does not tell how many parameters the model has."


def _missing_for_ring(run: ForeignRun) -> str:
    if run.world == 1 or len(run.hosts) == 1:
        return ""
    lacking = [
        name
        for name, value in (("processes", run.world), ("parameters", run.num_parameters))
        if not value
    ]
    return f"the number of {' and of '.join(lacking)}; `paceline train` records both, and the bytes"


def network(run: ForeignRun) -> Answer:
    question = QUESTIONS["network"]
    ring, step_seconds = ring_of(run), typical_step_seconds(run)
    share = network_share(run)
    if ring is None or step_seconds is None:
        return Answer(
            "network",
            question,
            f"{_why_no_ring(run)}{_at_most(run)}",
            missing=_missing_for_ring(run),
        )
    if share is None or run.link_bits_per_second is None:
        return Answer(
            "network",
            question,
            f"It cannot be told from the log alone: {format_bytes(ring.sent_bytes)} leave each "
            f"host in every step of {format_seconds(step_seconds)}.{_at_most(run)}",
            {"predicted_bytes_per_step": ring.sent_bytes},
            missing=_GIVE_LINK,
        )
    seconds = min(ring.seconds(run.link_bits_per_second), step_seconds)
    figures = {
        "network_share": min(share, 1.0),
        "network_seconds_per_step": seconds,
        "without_network_seconds": step_seconds - seconds,
        "link_bits_per_second": run.link_bits_per_second,
    }
    begin = "Yes" if share >= LEAST_SHARE else "No"
    sentence = (
        f"{begin}: at {bits(run.link_bits_per_second)} the gradients need "
        f"{format_seconds(seconds)} of every {format_seconds(step_seconds)} step "
        f"({percent(min(share, 1.0))}); on an infinitely fast network a step would take "
        f"{format_seconds(step_seconds - seconds)}, if computing hid none of it"
    )
    return Answer(
        "network",
        question,
        sentence + ".",
        figures,
        how="predicted for a ring all-reduce",
        missing="waiting that was measured, and how much of it computing hid; "
        "`paceline train` records both",
    )


def _at_most(run: ForeignRun) -> str:
    share = run.step_times.input_share
    if share is None or share < LEAST_SHARE or run.world == 1:
        return ""
    return (
        f" It is at most {percent(1 - share)} of the step, because {percent(share)} is input wait."
    )


def verdict(run: ForeignRun) -> Answer:
    question = QUESTIONS["verdict"]
    shares = {INPUT: run.step_times.input_share, NETWORK: network_share(run)}
    known = {name: min(share, 1.0) for name, share in shares.items() if share is not None}
    word = max(known, key=lambda name: known[name], default=None)
    if word is not None and known[word] >= LEAST_SHARE:
        figures = {"verdict": word, "share": known[word]}
        sentence, remedy = _held_up_by(run, word, known[word])
        return Answer("verdict", question, sentence, figures, remedy=remedy)
    if INPUT in known and run.world == 1:
        share = 1 - known[INPUT]
        return Answer(
            "verdict",
            question,
            f"Verdict: compute. {percent(share)} of the step is not input wait.",
            {"verdict": COMPUTE, "share": share},
            remedy="a faster device, a smaller model, or lower precision (`precision=bf16`)",
        )
    return _unclear(run, known)


def _held_up_by(run: ForeignRun, word: str, share: float) -> tuple[str, str]:
    step_seconds = typical_step_seconds(run) or 0.0
    if word == INPUT:
        faster = 1 / max(1 - share, 0.01)
        workers = run.config.get("workers")
        had = f" (`workers` was {workers})" if workers else ""
        return (
            f"Verdict: input. The devices wait for the next batch during {percent(share)} of the "
            f"step{had}; a loader {faster:.0f} times as fast would hide it.",
            _MORE_WORKERS,
        )
    ring = ring_of(run)
    assert ring is not None  # noqa: S101
    # A link on which the all-reduce takes a tenth of the step's other work no longer matters.
    rest = max(step_seconds * (1 - share), 0.05 * step_seconds)
    enough = bits(8 * ring.sent_bytes / (0.1 * rest))
    return (
        f"Verdict: network. Adding up the gradients takes {percent(share)} of the step.",
        f"a faster link (from {enough} on it would hardly be felt; `paceline hosts check` measures "
        "it), fewer bytes (16-bit gradients are half of them), or a larger batch for each exchange "
        "(`batch.global`)",
    )


def _unclear(run: ForeignRun, known: dict[str, float]) -> Answer:
    lacking = []
    if INPUT not in known:
        lacking.append("how long a step waits for its batch")
    if NETWORK not in known and run.world != 1:
        lacking.append("the speed of the link (`--link`)" if ring_of(run) else "what it sent")
    told = ", ".join(f"{name} {percent(share)}" for name, share in known.items())
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        f"Verdict: unclear. {f'Known is: {told} of the step. ' if told else ''}"
        f"The log does not tell {' nor '.join(lacking) or 'more'}.",
        {"verdict": UNCLEAR, **{f"{name}_share": share for name, share in known.items()}},
        missing=f"{' and '.join(lacking)}; `paceline train` measures every phase of a step",
    )
