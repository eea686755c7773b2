"""Which kind of exchange a run with `reduce: auto` gets. Pure judgement, from times and bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from paceline.settings import FEWEST_BITS, ReduceSettings
from paceline.units import format_seconds

HIERARCHICAL: Final = "hierarchical"
"""Plain, inside of hosts first: no kind of its own in a recipe."""
SAME_RESULT: Final = ("plain", "overlap", HIERARCHICAL)
ORDER: Final = (*SAME_RESULT, "bf16", "diloco", "powersgd", "topk")
"""From the least change of the result to the largest, as measured (docs/reduce.md)."""
_LEAST_GAIN: Final = 1.03
"""Times as fast: less is noise, and no reason to change anything."""
_NOTHING_TO_GAIN: Final = 0.03
"""Share of compute that gradients need on the wire: a trial could show nothing but noise."""
_HOPELESS: Final = 1.1
"""Times the best so far, that a kind must take at least: it is not worth timing."""
_MOST_OF_RUN: Final = 0.01
"""Share of a run's time with plain that timing one kind may take."""
_FULL_LINE: Final = 0.8
"""Share of the time that the line may be busy with DiLoCo's parts, so that no step waits."""


@dataclass(frozen=True)
class Measured:
    """What is known before any kind is timed."""

    compute_seconds: float
    """A step without any exchange."""
    bytes_per_second: float
    """Of values that an all-reduce of all processes gets through."""
    gradient_bytes: float
    num_procs: int = 2
    hierarchical_share: float | None = None
    """Of what a ring through all processes sends, where hosts have several: what leaves a host if
    it adds up inside first."""


@dataclass(frozen=True)
class Found:
    """Seconds of a step by kind: timed, or known to be at least."""

    timed: dict[str, float] = field(default_factory=dict)
    at_least: dict[str, float] = field(default_factory=dict)

    def seconds(self, kind: str) -> float | None:
        return self.timed.get(kind, self.at_least.get(kind))


def kinds_to_try(settings: ReduceSettings, known: Measured, on_cuda: bool) -> list[str]:
    """All that are allowed, if there is something to gain; `overlap` is for processors."""
    if wire_seconds(known) < _NOTHING_TO_GAIN * known.compute_seconds:
        return ["plain"]
    impossible = {
        *(["overlap"] if on_cuda else []),
        *([HIERARCHICAL] if known.hierarchical_share is None else []),
    }
    allowed = ORDER if settings.may_change_result else SAME_RESULT
    return [kind for kind in allowed if kind not in impossible]


def wire_seconds(known: Measured) -> float:
    """What the gradients of a step need on the wire."""
    return known.gradient_bytes / known.bytes_per_second


def least_seconds(kind: str, known: Measured, settings: ReduceSettings) -> float:
    """A step of this kind cannot be shorter."""
    on_wire = {
        "plain": known.gradient_bytes,
        "overlap": known.gradient_bytes,
        HIERARCHICAL: known.gradient_bytes * (known.hierarchical_share or 1.0),
        "bf16": known.gradient_bytes / 2,
        "diloco": _packed_bytes(known, settings) / period(known, settings),
    }
    return max(known.compute_seconds, on_wire.get(kind, 0.0) / known.bytes_per_second)


def period(known: Measured, settings: ReduceSettings) -> int:
    """DiLoCo's steps between exchanges: the recipe's, or as many as the line needs."""
    seconds = _packed_bytes(known, settings) / known.bytes_per_second
    needed = seconds / _FULL_LINE / max(known.compute_seconds, 1e-9)
    usual = ReduceSettings(kind="diloco", parts=settings.parts).every or 1
    wanted = max(settings.every or usual, needed)
    return -int(-wanted // settings.parts) * settings.parts


def _packed_bytes(known: Measured, settings: ReduceSettings) -> float:
    """Of one exchange of all weights, as an all-reduce would count them: four bits cannot be added
    up on the way, so that everybody gets those of all."""
    times = known.num_procs / 2 if settings.bits == FEWEST_BITS else 1.0
    return known.gradient_bytes * settings.packed_share * times


def settings_of(kind: str, known: Measured, settings: ReduceSettings) -> ReduceSettings:
    """The recipe's with this kind in place of auto; checked again, so that all fits together."""
    told = settings.model_dump() | {"kind": kind, "every": None, "delay": None}
    if kind == "diloco":
        told |= {"every": period(known, settings), "delay": settings.delay}
    if kind == HIERARCHICAL:
        told |= {"kind": "plain", "hierarchical": True}
    return ReduceSettings.model_validate(told)


def is_worth_timing(
    least: float, known: Measured, found: Found, num_passes: int, num_steps: int
) -> bool:
    """Whether a kind that takes at least so long may win, and to time it is little of the run."""
    best = min(found.timed.values(), default=least)
    plain = max(known.compute_seconds, wire_seconds(known))
    return least <= _HOPELESS * best and num_passes * least <= _MOST_OF_RUN * num_steps * plain


def choose(kinds: Sequence[str], found: Found) -> str:
    """The fastest; of those that are about as fast, the one that changes the least."""
    known = {kind: seconds for kind in kinds if (seconds := found.seconds(kind)) is not None}
    best = min(known.values(), default=0.0)
    about_as_fast = [k for k, s in known.items() if s <= _LEAST_GAIN * best and k in found.timed]
    return next(iter(about_as_fast), "plain")


def in_words(
    chosen: ReduceSettings, settings: ReduceSettings, found: Found, known: Measured
) -> str:
    """What was chosen, why, and what else there is."""
    compute, wire = format_seconds(known.compute_seconds), format_seconds(wire_seconds(known))
    text = f"reduce: auto takes {_named(chosen)}"
    if not found.timed:
        few = " and the run is too short for a trial" if found.at_least else ""
        return f"{text}: of a step of {compute}, gradients need {wire} on the wire{few}"
    told = ", ".join(_times(found))
    text += (
        f". A step takes {told}; compute alone takes {compute}, and gradients {wire} on the wire"
    )
    if not settings.may_change_result and wire_seconds(known) > known.compute_seconds:
        text += (
            ". Kinds that change the result (docs/reduce.md) were not tried; "
            "reduce.may_change_result=true allows them"
        )
    return text


def _named(chosen: ReduceSettings) -> str:
    if chosen.kind != "diloco":
        return HIERARCHICAL if chosen.hierarchical else chosen.kind
    return f"diloco, every {chosen.every} steps in {chosen.parts} parts"


def _times(found: Found) -> Iterator[str]:
    for kind in ORDER:
        if kind in found.timed:
            yield f"{format_seconds(found.timed[kind])} with {kind}"
        elif kind in found.at_least:
            yield f"at least {format_seconds(found.at_least[kind])} with {kind} (not timed)"


def slower_than_one_host(
    num_hosts: int, busy_seconds: float, waited_seconds: float, kind: str
) -> str | None:
    """Why one host alone would be faster, if it would: of a step, each of N hosts is busy for C
    seconds and waits for W; one host that does all of it takes N C."""
    together, alone = busy_seconds + waited_seconds, num_hosts * busy_seconds
    if num_hosts < 2 or together <= alone:
        return None
    remedy = "A larger batch makes exchanges rarer"
    if kind in SAME_RESULT:
        remedy = (
            "reduce=auto finds what is fastest here, and with reduce.may_change_result=true it may "
            "send far less"
        )
    computes, waits = format_seconds(busy_seconds), format_seconds(waited_seconds)
    return (
        f"{num_hosts} hosts are slower than one: in a step each computes for {computes} and waits "
        f"{waits} for the others; one host alone would take about {format_seconds(alone)}. "
        f"{remedy} (docs/reduce.md)"
    )
