"""Was the network the bottleneck: by waiting that was measured, else by what must be sent."""

from typing import Any

from paceline.record.schema import INPUT, NETWORK
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.traffic import MISSING_PROBES, missing_for_ring, why_no_ring
from paceline.report.answers.words import GIVE_LINK, HOW_PHASES, times_as_fast
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import (
    is_link_impossible,
    link_of,
    predicted_per_step,
    seconds_on_link,
    sent_per_step,
    slowest_possible_link,
)
from paceline.report.facts.verdict import LEAST_SHARE
from paceline.report.facts.world_times import WorldTimes
from paceline.units import format_bits, format_bytes, format_seconds, percent

_ALL_OF_STEP = 0.97


def network(facts: Facts) -> Answer:
    ask, found = QUESTIONS["network"], facts.verdict
    if facts.is_own and not found.step_seconds:
        return Answer("network", ask, "No step was recorded.", missing="steps")
    if facts.world.size == 1:
        return Answer(
            "network",
            ask,
            "No: there was one process, which sends nothing and waits for nobody.",
            {"share": 0.0, "step_seconds": found.step_seconds},
            HOW_PHASES if facts.is_own else "",
        )
    times = facts.world.times
    return _predicted(facts) if times is None else _measured(facts, times)


def _measured(facts: Facts, times: WorldTimes) -> Answer:
    found = facts.verdict
    share = times.per_step(NETWORK) / found.step_seconds
    figures: dict[str, Any] = {
        "share": share,
        "step_seconds": found.step_seconds,
        "without_network_seconds": found.without_network_seconds,
        "share_without_stragglers": found.shares.get(NETWORK, 0.0),
    }
    link_figures, link_text, missing = _link_use(facts)
    is_it = "Yes" if found.word == NETWORK else "No"
    fastest = found.without_network_seconds
    late = found.straggler
    waited_for = (
        f" Much of it was waiting for rank {late.rank}, the straggler, which a faster network "
        "does not change."
        if late
        else ""
    )
    sentence = (
        f"{is_it}: processes waited for each other for {percent(share)} of the loop. If sending "
        f"took no time at all, a step would take {format_seconds(fastest)} instead of "
        f"{format_seconds(found.step_seconds)} "
        f"({times_as_fast(found.step_seconds, fastest)}).{waited_for}{link_text}"
    )
    return Answer(
        "network",
        QUESTIONS["network"],
        sentence,
        figures | link_figures,
        HOW_PHASES + "; traffic from the interface's own counters",
        missing,
    )


def _link_use(facts: Facts) -> tuple[dict[str, Any], str, str]:
    """Figures, words, and what is missing about the link."""
    per_step, link, found = sent_per_step(facts), link_of(facts), facts.verdict
    if facts.world.num_hosts == 1 and link is None:
        return {}, " All processes were on one host, so no network link was used.", ""
    if per_step is None:
        return {}, "", MISSING_PROBES
    if link is None:
        return {"sent_bytes_per_step": per_step}, "", "the link's speed: give it with --link 1Gbit"
    wire_seconds = 8 * per_step / link
    share = wire_seconds / found.step_seconds
    text = (
        f" A step sends {format_bytes(per_step)} from each host, which takes a link of "
        f"{format_bits(link)} {format_seconds(wire_seconds)}: {percent(share)} of the step."
    )
    if found.word == NETWORK and share < 0.3 * found.share:
        text += (
            " So the link is fast enough: the time goes to many small messages, or to processes "
            "that are not ready at the same time."
        )
    if is_link_impossible(facts):
        text = ""  # the doubt says it
    figures = {
        "sent_bytes_per_step": per_step,
        "link_bits_per_second": link,
        "wire_seconds_per_step": wire_seconds,
        "link_share": share,
    }
    return figures, text, ""


def _predicted(facts: Facts) -> Answer:
    """Nobody measured waiting: the bytes of a ring all-reduce on the link are its upper bound."""
    sent, link, found = predicted_per_step(facts), link_of(facts), facts.verdict
    ask, seconds = QUESTIONS["network"], seconds_on_link(facts)
    measured = sent_per_step(facts)
    if measured is not None and is_link_impossible(facts):
        return _impossible(facts, measured)
    if measured is not None and found.step_seconds:
        return _counted(facts, measured, seconds)
    if sent is None or facts.world.num_hosts == 1 or not found.step_seconds:
        sentence = f"{why_no_ring(facts)}{_at_most(facts)}"
        return Answer("network", ask, sentence, missing=missing_for_ring(facts))
    step_seconds = found.step_seconds
    if is_link_impossible(facts):
        return _impossible(facts, sent)
    if seconds is None or link is None:
        return Answer(
            "network",
            ask,
            f"It cannot be told from the log alone: {format_bytes(sent)} leave each host in every "
            f"step of {format_seconds(step_seconds)}.{_at_most(facts)}",
            {"predicted_bytes_per_step": sent},
            missing=GIVE_LINK,
        )
    share, fastest = found.shares.get(NETWORK, 0.0), found.without_network_seconds
    sentence = (
        f"{'Yes' if share >= LEAST_SHARE else 'No'}: at {format_bits(link)} the gradients need "
        f"{format_seconds(min(seconds, step_seconds))} of every {format_seconds(step_seconds)} "
        f"step ({percent(share)}). {_without_network(share, fastest)}"
    )
    figures = {
        "network_share": share,
        "network_seconds_per_step": min(seconds, step_seconds),
        "without_network_seconds": fastest,
        "link_bits_per_second": link,
    }
    return Answer(
        "network",
        ask,
        sentence,
        figures,
        "predicted for a ring all-reduce",
        "measured waiting, and how much of it overlaps with computing; "
        "`paceline train` records both",
    )


def _counted(facts: Facts, measured: float, seconds: float | None) -> Answer:
    """Bytes are known from counters, waiting is not: their time on the link is its upper bound."""
    step_seconds, link = facts.verdict.step_seconds, link_of(facts)
    figures: dict[str, Any] = {"measured_bytes_per_step": measured, "step_seconds": step_seconds}
    sent = (
        f"each host sent {format_bytes(measured)} in every step of {format_seconds(step_seconds)}, "
        f"{format_bits(8 * measured / step_seconds)} on average"
    )
    how = f"the interfaces' counters; {facts.world.traffic_how}"
    if seconds is None or link is None:
        sentence = f"It cannot be told without the speed of the link: {sent}.{_at_most(facts)}"
        return Answer("network", QUESTIONS["network"], sentence, figures, how, GIVE_LINK)
    share = seconds / step_seconds
    figures |= {"link_bits_per_second": link, "link_share": share}
    word = "It may have been" if share >= LEAST_SHARE else "No"
    sentence = (
        f"{word}: {sent}, which is {percent(share)} of what a link of {format_bits(link)} carries; "
        "the step can have waited for it no longer than that."
    )
    return Answer("network", QUESTIONS["network"], sentence, figures, how)


def _without_network(share: float, fastest: float) -> str:
    if share > _ALL_OF_STEP:
        return (
            "That leaves nothing for computing: either sending overlaps with all of it, or the "
            "link was a little faster."
        )
    return (
        f"If sending took no time at all, a step would take {format_seconds(fastest)}; this "
        "assumes that sending does not overlap with computing."
    )


def _impossible(facts: Facts, sent: float) -> Answer:
    """Nothing can be said of a network that cannot have been."""
    said = next((d.text for d in facts.doubts if "network" in d.answers), "the link is impossible")
    least = slowest_possible_link(facts)
    return Answer(
        "network",
        QUESTIONS["network"],
        f"It cannot be told: {said}. So `--link` names another link than the one that was used, "
        "or gradients were exchanged in another way.",
        {
            "predicted_bytes_per_step": sent,
            "link_bits_per_second": link_of(facts),
            "slowest_link_bits_per_second": least,
        },
        "predicted for a ring all-reduce",
        "the speed of the link that was used: `paceline hosts check` measures it",
    )


def _at_most(facts: Facts) -> str:
    share = facts.verdict.shares.get(INPUT, 0.0)
    if share < LEAST_SHARE:
        return ""
    return (
        f" It is at most {percent(1 - share)} of the step, because {percent(share)} is input wait."
    )
