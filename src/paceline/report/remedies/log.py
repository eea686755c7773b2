"""What would have made the run of another tool faster, as far as its log tells."""

from collections.abc import Iterator

from paceline.pace.remedies import (
    Situation,
    faster_compute,
    faster_link,
    in_16_bits,
    larger_batch,
    more_workers,
)
from paceline.record.schema import COMPUTE, INPUT, NETWORK
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import diverged
from paceline.report.facts.network import link_of, predicted_per_step
from paceline.report.remedies.offer import Idea
from paceline.report.remedies.situation import TENSOR_CORES, times_the_workers
from paceline.units import format_bits

_HARDLY_FELT = 0.1
"""Of the step's other work: a link on which the all-reduce takes no more no longer matters."""


def ideas(facts: Facts, now: Situation | None) -> Iterator[Idea]:
    word = facts.verdict.word
    if diverged(facts.learning):
        return
    if word == INPUT:
        yield _input(now)
    if word == NETWORK:
        yield from _network(facts)
    if word == COMPUTE and "mixed" not in str(facts.printed.get("dtype", "")):
        how = "`precision=auto`; a faster device or a smaller model do as well"
        yield Idea("precision", "lower precision", faster_compute(TENSOR_CORES), how)


def _input(now: Situation | None) -> Idea:
    times = times_the_workers(now)
    how = (
        "`--workers` in PyTorch's example; smaller pictures or a faster disk do as well; "
        "`paceline train` finds in its first steps how many workers it needs (`input.workers=8` "
        "sets them)"
    )
    return Idea("workers", f"{times:.1f} times as many loader processes", more_workers(times), how)


def _network(facts: Facts) -> Iterator[Idea]:
    speed, enough = link_of(facts), _fast_enough(facts)
    if enough:
        change = faster_link(enough / speed if speed else 10)
        how = "`paceline hosts check` measures what there are"
        yield Idea("link", f"links of {format_bits(enough)}", change, how)
    yield Idea(
        "16-bit", "gradients in 16 bits, half of the bytes", in_16_bits("bf16"), changes_result=True
    )
    yield Idea(
        "batch",
        "twice the batch for each exchange",
        larger_batch(2),
        "`batch.global`",
        changes_result=True,
    )


def _fast_enough(facts: Facts) -> float | None:
    """Bits a second from which on the links would hardly matter."""
    sent, found = predicted_per_step(facts), facts.verdict
    if sent is None or not found.step_seconds:
        return None
    rest = max(found.without_network_seconds, 0.05 * found.step_seconds)
    return 8 * sent / (_HARDLY_FELT * rest)
