"""What would make a step faster, and by how much, by the same model. Pure arithmetic.

A change takes a situation (the job, its links, its size) to another; what it gains is how many
times as many units a second the other does. What a change is called and how it is made is the
business of those who offer it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from paceline.pace.exchange import Size
from paceline.pace.job import Exchange, Figure, Job, Link, Part
from paceline.pace.model import step_time
from paceline.pace.predict import Range, draws_of, gain_doubt, model_doubt, range_of

LEAST_GAIN: Final = 1.03
"""A remedy that gains less is not worth a sentence."""
_LOADER_SPREAD: Final = 0.08
"""Twice as many workers rarely give exactly twice as much."""
_WAITING_SPREAD: Final = 0.3
OVERLAP_BUCKET_BYTES: Final = 4.0 * 1024 * 1024
"""Of `reduce=overlap`, which waits for single buckets."""
DILOCO_SHARE: Final = 4.25 / 32
"""Of the bytes of fp32 that `reduce=diloco` sends of a weight."""
_CODING: Final = {"fp16": 0.4e-9, "bf16": 0.4e-9}
"""Seconds of a processor for a byte of gradients, to 16 bits and back; measured on CPUs."""
_AGREEING: Final = 1.3e-9
_AGREEING_IN_FEW_BITS: Final = 2.2e-9
"""Seconds for a byte of weights in an exchange of them: what they have moved since the last one, to
the wire's bits and back, and the step to what all agree on."""


@dataclass(frozen=True)
class Situation:
    job: Job
    link: Link
    size: Size


Change = Callable[[Situation], Situation]


@dataclass(frozen=True)
class Remedy:
    name: str
    """One word, for `paceline try`."""
    text: str
    gain: Range
    """Times as many units a second."""


def gain_of(before: Situation, change: Change) -> Range:
    after = change(before)
    rates = [
        step_time(one.job, one.size, draws_of(one.job, one.link)).rate for one in (after, before)
    ]
    gain = rates[0] / rates[1]
    if after.size != before.size:
        return range_of(np.asarray(gain / model_doubt(after.job, after.size)))
    return range_of(np.asarray(gain ** gain_doubt(len(gain))))


def is_worth_it(gain: Range) -> bool:
    return gain.middle >= LEAST_GAIN


def gain_in_words(gain: Range) -> str:
    """'1.42 times as fast, 1.30 to 1.50'."""
    digits = 2 if gain.middle < 9.95 else 0
    low, middle, high = (f"{value:.{digits}f}" for value in (gain.low, gain.middle, gain.high))
    return f"{middle} times as fast, {low} to {high}"


def faster_link(times: float) -> Change:
    def change(now: Situation) -> Situation:
        speed = now.link.bits_per_second
        link = replace(now.link, bits_per_second=replace(speed, value=times * speed.value))
        return replace(now, link=link)

    return change


def larger_batch(times: int) -> Change:
    """The same bytes are exchanged whatever the batch, so fewer for each unit."""

    def change(now: Situation) -> Situation:
        job = now.job
        micro = times * job.micro_batches if job.micro_batches else None
        larger = replace(job, units_per_step=times * job.units_per_step, micro_batches=micro)
        return replace(now, job=larger)

    return change


def more_workers(times: float) -> Change:
    def change(now: Situation) -> Situation:
        more = Figure(times, _LOADER_SPREAD, "as many times as there are workers")
        return replace(now, job=replace(now.job, input_times=more))

    return change


def with_exchange(build: Callable[[Exchange], Exchange]) -> Change:
    def change(now: Situation) -> Situation:
        return replace(now, job=replace(now.job, exchange=build(now.job.exchange)))

    return change


def in_16_bits(kind: str) -> Change:
    return with_exchange(lambda old: _halved(old, kind))


def _halved(old: Exchange, kind: str) -> Exchange:
    """Half of the bytes, and some work to make them and back."""
    return replace(old, sent_share=old.sent_share / 2, coding=_work(_CODING[kind], old))


def _work(seconds_per_byte: float, old: Exchange) -> Figure:
    """On this processor, which copies so much faster or slower than the one that was measured."""
    times = old.copying.value / Exchange().copying.value
    return Figure(seconds_per_byte * times, 0.5, "measured on CPUs; see docs/model.md")


def other_buckets(bucket_bytes: float) -> Change:
    return with_exchange(lambda old: replace(old, bucket_bytes=bucket_bytes))


def in_order_of_need(bucket_bytes: float) -> Change:
    return with_exchange(lambda old: _travelling(old, bucket_bytes))


def _travelling(old: Exchange, bucket_bytes: float) -> Exchange:
    """Sending goes on through the update and the next forward pass."""
    return replace(old, lasts="next forward", bucket_bytes=bucket_bytes)


def rarer_exchange(every_steps: int, packed_share: float | None = None) -> Change:
    return with_exchange(lambda old: _rarer(old, every_steps, packed_share))


def _rarer(old: Exchange, every_steps: int, packed_share: float | None) -> Exchange:
    """Steps of each process's own between two exchanges of the weights. Local SGD waits for them,
    DiLoCo sends them in parts, with a share of the bits, while training goes on."""
    whole = sum(part.num_bytes for part in old.parts) or 1.0
    work = _work(_AGREEING if packed_share is None else _AGREEING_IN_FEW_BITS, old)
    late = replace(
        old,
        every_steps=every_steps * old.every_steps,
        parts=(Part(whole, 1.0),),
        coding=work,
    )
    if packed_share is None:
        return late
    return replace(late, lasts="steps", sent_share=packed_share * old.sent_share)


def exchange_of(kind: str, plain: Exchange, every_steps: int, wire_share: float) -> Exchange:
    """That of a recipe's `reduce`, in place of the one that sends all gradients of every step."""
    if kind in _CODING:
        return _halved(plain, kind)
    if kind == "overlap":
        return _travelling(plain, OVERLAP_BUCKET_BYTES)
    if kind in ("local", "diloco"):
        return _rarer(plain, every_steps, wire_share * every_steps if kind == "diloco" else None)
    return replace(plain, sent_share=wire_share * plain.sent_share)


def rarer_saves(times: int) -> Change:
    def change(now: Situation) -> Situation:
        plan = now.job.schedule
        if plan is None or not plan.save_every:
            return now
        rare = replace(plan, save_every=times * plan.save_every)
        return replace(now, job=replace(now.job, schedule=rare))

    return change


def faster_compute(times: Figure) -> Change:
    """Of forward and backward; how much faster is itself uncertain."""
    return lambda now: replace(now, job=replace(now.job, compute_times=times))


def less_waiting(share: float) -> Change:
    """Of what processes wait for each other, so much falls away."""

    def change(now: Situation) -> Situation:
        old = now.job.network
        spread = max(old.spread, _WAITING_SPREAD)
        network = replace(old, value=(1 - share) * old.value, spread=spread)
        return replace(now, job=replace(now.job, network=network))

    return change


def more_hosts(hosts: int) -> Change:
    return lambda now: replace(now, size=replace(now.size, hosts=hosts))


def remedies(job: Job, link: Link, size: Size) -> list[Remedy]:
    """What is worth trying at a size, whatever the job is called: the best first."""
    now = Situation(job, link, size)
    offers: list[tuple[str, str, Change]] = []
    if job.input_rate is not None:
        offers.append(("workers", "twice as many loader workers", more_workers(2)))
    if size.processes > 1:
        offers += _other_exchanges(job.exchange)
    if size.hosts > 1:
        offers.append(("link", "links of ten times the speed", faster_link(10)))
        offers.append(("one-host", "one host alone", more_hosts(1)))
    if job.schedule is not None and job.schedule.save_every:
        offers.append(("saves", "checkpoints a tenth as often", rarer_saves(10)))
    found = [Remedy(name, text, gain_of(now, change)) for name, text, change in offers]
    worth = [remedy for remedy in found if is_worth_it(remedy.gain)]
    return sorted(worth, key=lambda remedy: -remedy.gain.middle)


def _other_exchanges(exchange: Exchange) -> Iterator[tuple[str, str, Change]]:
    """Of a job that exchanges all gradients of every step; what changes the least comes first."""
    text = "twice the batch, so that gradients are exchanged half as often"
    yield "batch", text, larger_batch(2)
    if exchange.every_steps != 1 or exchange.sent_share != 1 or exchange.lasts != "backward":
        return
    if exchange.is_on_processors:
        text = "gradients that travel on through the next forward pass (reduce=overlap)"
        yield "overlap", text, in_order_of_need(OVERLAP_BUCKET_BYTES)
    yield "bf16", "gradients in 16 bits on the wire (reduce=bf16)", in_16_bits("bf16")
    text = "weights exchanged in parts beside 8 steps, which learns otherwise (reduce=diloco)"
    yield "diloco", text, rarer_exchange(8, DILOCO_SHARE)
