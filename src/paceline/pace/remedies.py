"""What would help at a size, and by how much, by the same model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from paceline.pace.job import Figure, Job, Link
from paceline.pace.model import Size, step_time
from paceline.pace.predict import Range, draws_of

_LEAST_GAIN: Final = 1.03
"""A remedy that gains less is not worth a sentence."""


@dataclass(frozen=True)
class Remedy:
    text: str
    gain: Range
    """Times as many units a second."""


def remedies(job: Job, link: Link, size: Size) -> list[Remedy]:
    """The best first."""
    found = [
        Remedy(text, _gain(job, link, size, change(job, link)))
        for text, change in _offers(job, link)
    ]
    return sorted(
        (remedy for remedy in found if remedy.gain.middle >= _LEAST_GAIN),
        key=lambda remedy: -remedy.gain.middle,
    )


Change = Callable[[Job, Link], tuple[Job, Link]]


def _offers(job: Job, link: Link) -> list[tuple[str, Change]]:
    offers: list[tuple[str, Change]] = [
        ("links of ten times the speed", _ten_times_the_link),
        ("gradients in 16 bits", _half_the_bytes),
        ("twice the batch, so that gradients are exchanged half as often", _twice_the_batch),
    ]
    if job.input_rate is not None:
        offers.append(("twice as many loader workers", _twice_the_loader))
    return offers


def _ten_times_the_link(job: Job, link: Link) -> tuple[Job, Link]:
    speed = replace(link.bits_per_second, value=10 * link.bits_per_second.value)
    return job, replace(link, bits_per_second=speed)


def _half_the_bytes(job: Job, link: Link) -> tuple[Job, Link]:
    whole = job.gradient_bytes
    half = replace(whole, value=whole.value / 2) if whole else None
    return replace(job, gradient_bytes=half), link


def _twice_the_batch(job: Job, link: Link) -> tuple[Job, Link]:
    micro = 2 * job.micro_batches if job.micro_batches else None
    return replace(job, units_per_step=2 * job.units_per_step, micro_batches=micro), link


def _twice_the_loader(job: Job, link: Link) -> tuple[Job, Link]:
    rate = job.input_rate or Figure(0.0, 0.0, "")
    return replace(job, input_rate=replace(rate, value=2 * rate.value)), link


def _gain(job: Job, link: Link, size: Size, changed: tuple[Job, Link]) -> Range:
    before, after = (
        step_time(job, size, draws_of(job, link)),
        step_time(changed[0], size, draws_of(*changed)),
    )
    ratio = (after.units / after.seconds) / (before.units / before.seconds)
    low, middle, high = np.percentile(ratio, [5, 50, 95])
    return Range(float(middle), float(low), float(high))
