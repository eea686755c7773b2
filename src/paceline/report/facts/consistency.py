"""Whether the facts of a run fit together, before anything is printed. Pure judgement.

Every figure comes from somewhere: a clock, a column, a setting, the user. Where two of them cannot
both be true, the answers that rest on them say so, and no verdict is built on them.
"""

from collections.abc import Iterator
from dataclasses import replace

from paceline.report.facts.facts import Doubt, Facts
from paceline.report.facts.network import is_link_impossible, link_of, slowest_possible_link
from paceline.report.facts.verdict import UNCLEAR
from paceline.units import count_of, format_bits, format_seconds, percent

_TOLERANCE = 1.05
"""Figures are rounded where they are printed, and clocks are read at different moments."""
_LEAST_SECONDS = 1.0


def checked(facts: Facts) -> Facts:
    """The same facts with what does not fit, and a verdict that does not rest on it."""
    doubts = tuple([*_link(facts), *_shares(facts), *_wall(facts), *_rate(facts)])
    spoilt = [doubt.text for doubt in doubts if "verdict" in doubt.answers]
    if not spoilt:
        return replace(facts, doubts=doubts)
    found = facts.verdict
    unclear = replace(
        found,
        word=UNCLEAR,
        share=0.0,
        shares={},
        straggler=None,
        why_unclear=spoilt[0],
        without_network_seconds=found.step_seconds,
        without_input_seconds=found.step_seconds,
        lacking=(),
    )
    return replace(facts, doubts=doubts, verdict=unclear)


def _link(facts: Facts) -> Iterator[Doubt]:
    if not is_link_impossible(facts):
        return
    link, least = link_of(facts) or 0.0, slowest_possible_link(facts)
    text = (
        f"the link cannot have been {format_bits(link)}: what a step of "
        f"{format_seconds(facts.verdict.step_seconds)} sends needs at least {format_bits(least)}"
    )
    # The verdict of an own run rests on waiting that was measured, whatever the link.
    rest = () if facts.is_own else ("verdict", "busy", "input")
    yield Doubt(text, ("network", "traffic", *rest))


def _shares(facts: Facts) -> Iterator[Doubt]:
    shares = facts.verdict.shares
    total = sum(shares.values())
    odd = [name for name, share in shares.items() if not -0.01 <= share <= _TOLERANCE]
    if not odd and total <= _TOLERANCE:
        return
    told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    keys = ("verdict", "busy", "network", "input")
    yield Doubt(f"the shares of a step add up to {percent(total)} ({told})", keys)


def _wall(facts: Facts) -> Iterator[Doubt]:
    wall, times = facts.wall_seconds, facts.step_times
    booked = sum(facts.booked.values())
    if wall and booked > _TOLERANCE * wall + _LEAST_SECONDS:
        yield Doubt(
            f"the parts of the time add up to {format_seconds(booked)}, more than the "
            f"{format_seconds(wall)} that it took in all",
            ("duration", "cost"),
        )
    elif wall and times is not None:
        steps = times.num_steps * times.mean_seconds
        if steps > _TOLERANCE * wall + _LEAST_SECONDS:
            yield Doubt(
                f"{count_of(times.num_steps, 'step')} of {format_seconds(times.mean_seconds)} are "
                f"{format_seconds(steps)}, more than the {format_seconds(wall)} that it took in "
                "all",
                ("duration", "step", "cost"),
            )


def _rate(facts: Facts) -> Iterator[Doubt]:
    """What was trained on against how fast, in the time that training took."""
    times, booked = facts.step_times, facts.booked
    seconds = booked.get("training", 0.0)
    if seconds:
        seconds += booked.get("unexplained", 0.0) + booked.get("checkpoint", 0.0)
    if facts.roles is not None and not facts.roles.is_sync:
        seconds += booked.get("evaluation", 0.0)  # others train while the chief evaluates
    rate = times.units_per_second if times is not None else None
    if rate is None or not seconds or not facts.num_units:
        return
    # The rate is of the loop, which is never longer than all that may be part of it.
    if rate * seconds < facts.num_units / _TOLERANCE - rate * _LEAST_SECONDS:
        yield Doubt(
            f"{rate:,.0f} a second for {format_seconds(seconds)} are fewer than the "
            f"{facts.num_units:,.0f} that were trained on",
            ("step", "duration"),
        )
