"""The verdict in words, with the remedy that this project offers as a command."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.script import unmeasured_of_script
from paceline.report.facts.facts import Facts, Failed
from paceline.report.facts.stragglers import Straggler
from paceline.report.facts.verdict import LEAST_SHARE, STRAGGLER, UNCLEAR, Verdict
from paceline.report.remedies import remedies_of
from paceline.report.remedies.offer import Offer, shown_first
from paceline.report.roles.answer import server_sentence
from paceline.report.roles.use import SERVER_COMPUTE, SERVER_LINK
from paceline.units import format_seconds, percent

_MANY_TIMES = 9.5
_MOST_SETTINGS = 12
_LONG_VALUE = 60
_OTHER_RANK = 0.1
"""Of the step: a rank that waits so much longer than any other is alone with it."""


def verdict(facts: Facts) -> Answer:
    found = facts.verdict
    figures: dict[str, Any] = {"verdict": found.word, "share": found.share, "shares": found.shares}
    if found.straggler is not None:
        figures["straggler"] = vars(found.straggler)
    if facts.failed_at_start and facts.failure is not None:
        return _failed(facts, facts.failure)
    if facts.world.rank_inputs:
        figures["input_share_by_rank"] = {r.name: r.input_share for r in facts.world.rank_inputs}
    offers = remedies_of(facts)
    figures["remedies"] = [asdict(offer) for offer in offers]
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        sentence(found)
        + _servers(facts)
        + _slow_rank(facts)
        + _loader(facts)
        + unmeasured_of_script(facts),
        figures,
        f"a bottleneck is what would save at least {percent(LEAST_SHARE)} of the {found.whole} if "
        "it took no time; waiting for a straggler (one slow process) is not counted as network",
        _missing(found),
        _remedy(facts, shown_first(offers)),
    )


def _remedy(facts: Facts, offers: Sequence[Offer]) -> str:
    """With the way to see whether the best that can be tried keeps its promise."""
    tried = [offer for offer in offers if offer.setting and offer.gain]
    how = [f"to check it: paceline try {facts.run} {tried[0].name}"] if tried else []
    return "; ".join([*(offer.in_words for offer in offers), *how])


def _servers(facts: Facts) -> str:
    if facts.roles is None or facts.verdict.word not in (SERVER_LINK, SERVER_COMPUTE):
        return ""
    return server_sentence(facts.roles)


def _failed(facts: Facts, failure: Failed) -> Answer:
    """A start that failed has no step to judge; what failed is what held it up."""
    what = f"{failure.kind} ({failure.line})" if failure.kind else failure.line
    told = [f"{name} {value}" for name, value in facts.printed.items() if _is_short(value)]
    said = f" The configuration says: {', '.join(told[:_MOST_SETTINGS])}." if told else ""
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        f"It failed before its first step: {what}.{said}",
        {"verdict": UNCLEAR, "failure": failure.line, "failure_kind": failure.kind},
        "the last error in the log that no step follows",
        "" if failure.kind else "what the error means: it is of no kind that is known here",
        failure.remedy,
    )


def _is_short(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) < _LONG_VALUE)


def _slow_rank(facts: Facts) -> str:
    """Processes step together: the one that waits longest for its batches sets the pace."""
    ranks, found = facts.world.rank_inputs, facts.verdict
    if len(ranks) < 2 or found.word != INPUT:
        return ""
    slowest = max(ranks, key=lambda rank: rank.input_share)
    others = [rank.input_share for rank in ranks if rank is not slowest]
    if slowest.input_share - max(others) < _OTHER_RANK:
        low, high = percent(min(others)), percent(slowest.input_share)
        each = f" ({low} to {high})" if low != high else ""
        return f" All {len(ranks)} processes wait for it alike{each}."
    spread = percent(max(others)) if len(others) == 1 else f"at most {percent(max(others))}"
    name = slowest.name if not slowest.name.isdecimal() else f"process {slowest.name} of the log"
    return (
        f" That is {name}, the straggler: the others wait for their own batches for {spread} and "
        "then for it."
    )


def sentence(found: Verdict) -> str:
    share, late = f"{percent(found.share)} of the {found.whole}", found.straggler
    said = {
        INPUT: f"Input: {share} is waiting for the next batch.",
        NETWORK: f"Network: {share} is communication{_hidden(found)}.",
        CHECKPOINT: f"Checkpoint: for {share} it stood still while checkpoints were saved.",
        SERVER_LINK: f"Server link: {share} is waiting for gradients and weights on their way.",
        SERVER_COMPUTE: f"Server compute: {share} is waiting for servers to make the update.",
    }
    if found.word in said:
        return said[found.word]
    if found.word == STRAGGLER and late is not None:
        return f"Straggler: {share} is lost to {_who(late)}."
    if found.word == COMPUTE:
        work = "forward, backward and update" if found.whole == "loop" else "not waiting"
        return f"Compute: {share} is {work}; nothing else takes a quarter of it."
    known = [f"{name} {percent(part)}" for name, part in found.shares.items()]
    told = f"; known is {', '.join(known)} of the step" if found.lacking and known else ""
    return f"Unclear: {found.why_unclear}{told}."


def _hidden(found: Verdict) -> str:
    is_measured = found.whole == "loop"
    return (
        " that did not overlap with compute" if is_measured else ", if none overlaps with compute"
    )


def _who(late: Straggler) -> str:
    host = f" on {late.host}" if late.host else ""
    return (
        f"rank {late.rank}{host}: in each step the others wait "
        f"{format_seconds(late.seconds_per_step)} for it, and it is slower in {late.phase} "
        f"({format_seconds(late.extra_seconds)} a step more than the others)"
    )


def _loader(facts: Facts) -> str:
    """How much faster a loader that another tool ran would have to be."""
    if facts.is_own or facts.verdict.word != INPUT:
        return ""
    workers = facts.printed.get("workers")
    had = f" `workers` was {workers}." if workers else ""
    faster = 1 / max(1 - facts.verdict.share, 0.01)
    shown = f"{faster:.1f}" if faster < _MANY_TIMES else f"{faster:.0f}"
    return f"{had} A loader {shown} times as fast would keep up."


def _missing(found: Verdict) -> str:
    if found.word != UNCLEAR:
        return ""
    if found.lacking:
        return f"{' and '.join(found.lacking)}; `paceline train` measures every phase of a step"
    return f"a clearer picture: {found.why_unclear}"
