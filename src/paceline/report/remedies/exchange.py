"""What the way in which processes exchanged gradients cost and bought, against plain all-reduce."""

from dataclasses import replace
from typing import Any, Final

from paceline.errors import UserError
from paceline.pace.exchange import Size
from paceline.pace.job import Figure, Link
from paceline.pace.predict import Range, predict
from paceline.record.schema import NETWORK
from paceline.report.answers.answer import OF_EXCHANGE, Answer
from paceline.report.answers.words import GIVE_LINK
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import link_of
from paceline.report.remedies.job import LAN_LATENCY, job_of
from paceline.units import count_of, format_bits, format_bytes, format_seconds

PLAIN: Final = "plain"
_MEANING: Final = {
    "overlap": "the gradients of plain, in the order of need; the result is the same",
    "fp16": "gradients in 16 bits; the result is rounded",
    "bf16": "gradients in 16 bits; the result is rounded",
    "powersgd": "matrices of gradients as two thin ones; what is left out comes with later steps",
    "topk": "the largest gradients; what is left out comes with later steps",
    "local": "steps that each process made alone, averaged now and then; the result is another",
    "diloco": "steps that each process made alone, exchanged in parts; the result is another",
}


def kind_of(facts: Facts) -> str:
    """As recorded by the run; older ones know one kind only."""
    return str(facts.begin.get("reduce") or PLAIN)


def is_asked(facts: Facts) -> bool:
    return facts.is_own and kind_of(facts) != PLAIN and (facts.world.size or 1) > 1


def exchange(facts: Facts) -> Answer:
    kind, times = kind_of(facts), facts.world.times
    meaning = f" ({_MEANING[kind]})" if kind in _MEANING else ""
    waited = times.per_step(NETWORK) if times is not None else None
    figures: dict[str, Any] = {
        "reduce": kind,
        "step_seconds": facts.verdict.step_seconds or None,
        "waited_seconds": waited,
    }
    by_size, sizes = _bytes(facts)
    stale, ages = _staleness(facts)
    against, plain, missing = _against_plain(facts)
    chosen = f" {facts.exchange_note}." if facts.exchange_note else ""
    took = (
        f" A step took {format_seconds(facts.verdict.step_seconds)}, of which processes waited for "
        f"each other {format_seconds(waited)}."
        if facts.verdict.step_seconds and waited is not None
        else ""
    )
    return Answer(
        "exchange",
        OF_EXCHANGE,
        f"reduce={kind}{meaning}.{by_size}{stale}{took}{against}{chosen}",
        figures | sizes | ages | plain,
        "bytes as each process gave them to the exchange; what plain would have taken is predicted "
        "from this run's own compute by the model of a step (docs/model.md)",
        missing,
    )


def _bytes(facts: Facts) -> tuple[str, dict[str, Any]]:
    sent, whole = facts.world.gradient_bytes, facts.begin.get("gradient_bytes")
    if not sent or not whole:
        return "", {}
    figures = {"exchanged_bytes_per_step": sent, "plain_bytes_per_step": whole}
    if sent > 0.99 * whole:
        return "", figures
    text = (
        f" Each process gave {format_bytes(sent)} to the exchange in a step, 1/{whole / sent:.3g} "
        f"of the {format_bytes(whole)} that plain takes."
    )
    return text, figures | {"times_fewer_bytes": whole / sent}


def _staleness(facts: Facts) -> tuple[str, dict[str, Any]]:
    """How long what one process learned was unknown to the others."""
    every = facts.begin.get("exchanged_every")
    if not isinstance(every, int):
        return "", {}
    delay = (facts.settings.get("reduce") or {}).get("delay")
    late = delay if isinstance(delay, int) and kind_of(facts) == "diloco" else 0
    mean, most = (every + 1) / 2 + late, every + late
    text = (
        f" What one process learned reached the others after {mean:.3g} steps on average, "
        f"{count_of(most, 'step')} at most; scores and checkpoints are of the weights that all had "
        "agreed on."
    )
    return text, {"staleness_steps": mean, "most_staleness_steps": most}


def _against_plain(facts: Facts) -> tuple[str, dict[str, Any], str]:
    """Words, figures, and what is missing for them."""
    if (facts.world.num_hosts or 1) > 1 and not link_of(facts):
        return "", {}, GIVE_LINK
    try:
        plain = plain_step(facts)
    except UserError as error:
        return "", {}, error.what
    took = facts.verdict.step_seconds
    text = (
        f" By the model of a step, plain would have taken {format_seconds(plain.middle)} "
        f"({format_seconds(plain.low)} to {format_seconds(plain.high)}{_on_link(facts)})"
        f"{_ratio(plain.middle, took)}."
    )
    figures = {"plain_step_seconds": plain.middle, "times_as_fast_as_plain": plain.middle / took}
    return text, figures, ""


def _on_link(facts: Facts) -> str:
    link = link_of(facts)
    return f", on links of {format_bits(link)}" if link and facts.world.num_hosts != 1 else ""


def _ratio(plain: float, took: float) -> str:
    ratio = plain / took
    if ratio >= 1.02:
        return f", {ratio:.3g} times as long"
    return ", which is less" if ratio < 0.98 else ", about as long"


def plain_step(facts: Facts) -> Range:
    """Seconds of a step of this very job with DDP and its defaults."""
    whole = facts.begin.get("gradient_bytes")
    job = job_of(facts, float(whole) if whole else None)
    hosts = facts.world.num_hosts or 1
    speed = Figure(link_of(facts) or 1e9, 0.02, "the run's own")
    size = Size(hosts, max(1, (facts.world.size or 1) // hosts))
    job = replace(job, network=Figure(1.0, 0.05, "the formulas"))
    return predict(job, Link(speed, LAN_LATENCY), [size])[0].step_seconds
