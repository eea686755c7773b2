"""From figures with their uncertainty to predictions with theirs, for each number of hosts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from paceline.pace.exchange import Numbers, Size, Wire, sent_bytes
from paceline.pace.job import Figure, Job, Link
from paceline.pace.model import Draws, StepTime, step_time, units_of
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK, OPTIMIZER

_NUM_DRAWS: Final = 4000
_NUM_FIGURES: Final = 14
_ROOM = Figure(0.7, 0.3, "measured with reduce=overlap: half to nine tenths (docs/model.md)")
"""Of the update and the next forward pass, what hides gradients on their way: the weights that are
needed first are those whose gradients come last."""
_SEED: Final = 20260101
_LOW, _HIGH = 5.0, 95.0
_MODEL_SPREAD: Final = 0.04
"""What the formulas leave out, at a size that was not measured."""
_LEAST_SHARE: Final = 0.25
"""From which share of a step on something is called the bottleneck; as in reports."""
_LEAST_GAIN: Final = 0.25
"""Of a host: one that adds less to the speed is called waste."""
MOST_HOSTS: Final = 4096
"""That are looked at."""


@dataclass(frozen=True)
class Range:
    """The middle of what may be, and the interval that holds nine tenths of it."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    size: Size
    step_seconds: Range
    phases: dict[str, float]
    """Seconds of a step; they add up to the middle."""
    units_per_second: Range
    speed_up: Range
    """Against one host with as many devices."""
    efficiency: float
    sent_bytes_per_step: float
    """From each host."""
    wire_seconds: float
    """Of a step, that the link is busy, hidden or not."""
    link_share: float
    """Of the step."""
    bottleneck: str
    burst_step_seconds: float | None = None
    """While the hosts may send faster than they can for long."""
    total_seconds: Range | None = None
    """To the recipe's last step, evaluations and saves included."""
    cost: Range | None = None
    why_not: str = ""
    """Why so many processes cannot train this job at all; the figures then mean nothing."""


def draws_of(job: Job, link: Link) -> Draws:
    """The same random numbers for every size, so that sizes are compared and not luck."""
    luck = iter(np.random.default_rng(_SEED).normal(0.0, 1.0, (_NUM_FIGURES, _NUM_DRAWS)))

    def drawn(figure: Figure | None) -> Numbers:
        deviation = next(luck)
        value, spread = (figure.value, figure.spread) if figure else (0.0, 0.0)
        return np.asarray(value * np.exp(spread * deviation), dtype=np.float64)

    rate = drawn(job.input_rate) * drawn(job.input_times)
    return Draws(
        compute=drawn(job.compute) / drawn(job.compute_times),
        update=drawn(job.update),
        gradient_bytes=drawn(job.gradient_bytes),
        fixed=np.minimum(drawn(job.fixed), 1.0),
        jitter=drawn(job.jitter),
        network=drawn(job.network),
        input_rate=rate if job.input_rate else None,
        wire=Wire(
            bits_per_second=drawn(link.bits_per_second),
            latency_seconds=drawn(link.latency_seconds),
            copying=drawn(job.exchange.copying),
            coding=drawn(job.exchange.coding),
        ),
        room=np.minimum(drawn(_ROOM), 1.0),
    )


def predict(
    job: Job, link: Link, sizes: Sequence[Size], price_per_hour: float | None = None
) -> list[Prediction]:
    draws = draws_of(job, link)
    alone = step_time(job, Size(1, job.devices_per_host), draws).rate
    found = [_predict_one(job, size, draws, alone, price_per_hour) for size in sizes]
    if not link.burst_bits_per_second:
        return found
    fast = replace(
        link, bits_per_second=replace(link.bits_per_second, value=link.burst_bits_per_second)
    )
    quick = draws_of(job, fast)
    return [
        replace(one, burst_step_seconds=float(np.median(step_time(job, one.size, quick).seconds)))
        for one in found
    ]


def _predict_one(
    job: Job, size: Size, draws: Draws, alone: Numbers, price_per_hour: float | None
) -> Prediction:
    found = step_time(job, size, draws)
    doubt = model_doubt(job, size)
    seconds, speed_up = found.seconds * doubt, found.rate / doubt / alone
    total = _total(job, size, found, seconds)
    middle = {phase: float(np.median(values)) for phase, values in found.phases.items()}
    wire = float(np.median(found.wire))
    return Prediction(
        size=size,
        step_seconds=range_of(seconds),
        phases=_adding_up(middle, float(np.median(seconds))),
        units_per_second=range_of(found.units / seconds),
        speed_up=range_of(speed_up),
        efficiency=float(np.median(speed_up)) / size.hosts,
        sent_bytes_per_step=float(np.median(sent_bytes(size, draws.gradient_bytes, job.exchange))),
        wire_seconds=wire,
        link_share=wire / float(np.median(seconds)) if size.hosts > 1 else 0.0,
        bottleneck=bottleneck(middle),
        total_seconds=None if total is None else range_of(total),
        cost=_cost(total, size, price_per_hour),
        why_not=_why_not(job, size),
    )


def model_doubt(job: Job, size: Size) -> Numbers:
    """Factors for what the formulas leave out; none for the size that was measured."""
    if size.processes == job.measured_processes:
        return np.ones(_NUM_DRAWS)
    luck = np.random.default_rng(_SEED + 1)
    return np.asarray(np.exp(luck.normal(0.0, _MODEL_SPREAD, _NUM_DRAWS)), dtype=np.float64)


def gain_doubt(num_draws: int) -> Numbers:
    """Powers of a gain for what the formulas leave out: the more is changed, the more that is."""
    luck = np.random.default_rng(_SEED + 2)
    return np.asarray(np.exp(luck.normal(0.0, _MODEL_SPREAD, num_draws)), dtype=np.float64)


def range_of(values: Numbers) -> Range:
    low, middle, high = np.percentile(values, [_LOW, 50.0, _HIGH])
    return Range(float(middle), float(low), float(high))


def _adding_up(phases: dict[str, float], total: float) -> dict[str, float]:
    """Medians of parts need not add up to the median of the sum; what is printed must."""
    factor = total / sum(phases.values()) if sum(phases.values()) else 1.0
    return {phase: seconds * factor for phase, seconds in phases.items()}


def bottleneck(phases: dict[str, float]) -> str:
    total = sum(phases.values())
    waits = {phase: phases[phase] for phase in (INPUT, NETWORK, OPTIMIZER, CHECKPOINT)}
    worst = max(waits, key=lambda phase: waits[phase])
    return worst if total and waits[worst] >= _LEAST_SHARE * total else COMPUTE


def _total(job: Job, size: Size, found: StepTime, step_seconds: Numbers) -> Numbers | None:
    """Steps of a batch that grows with the world are fewer for the same samples."""
    plan = job.schedule
    if plan is None or not plan.steps:
        return None
    steps = plan.steps * job.units_per_step / found.units * more_samples(job, size)
    between = plan.evaluation_seconds / plan.evaluate_every if plan.evaluate_every else 0.0
    return np.asarray(plan.start_up_seconds + steps * (step_seconds + between), dtype=np.float64)


def more_samples(job: Job, size: Size) -> float:
    """How many times as many samples the same quality takes as with one host's batch."""
    batch, _ = units_of(job, size)
    alone, _ = units_of(job, Size(1, job.devices_per_host))
    return float(job.samples_growth ** math.log2(batch / alone))


def _cost(total: Numbers | None, size: Size, price_per_hour: float | None) -> Range | None:
    if total is None or price_per_hour is None:
        return None
    return range_of(total / 3600 * size.hosts * price_per_hour)


def _why_not(job: Job, size: Size) -> str:
    if job.micro_batches and not job.grows_with_world and size.processes > job.micro_batches:
        return (
            f"a step has {job.micro_batches} micro-batches, too few for {size.processes} processes"
        )
    return ""


def most_useful_hosts(job: Job, link: Link, devices: int) -> int:
    """From this number on, another host adds less than a quarter of a host to the speed."""
    draws = draws_of(job, link)

    def rate(hosts: int) -> float:
        return float(np.median(step_time(job, Size(hosts, devices), draws).rate))

    most = _most_hosts(job, devices)
    sizes = [1 << power for power in range(most.bit_length())]
    alone, before = rate(1), rate(1)
    for last, hosts in pairwise(sizes):
        now = rate(hosts)
        if now - before < _LEAST_GAIN * alone * (hosts - last):
            return _last_that_pays(rate, last, hosts, alone)
        before = now
    return most


def _most_hosts(job: Job, devices: int) -> int:
    if job.micro_batches and not job.grows_with_world:
        return max(min(MOST_HOSTS, job.micro_batches // devices), 1)
    return MOST_HOSTS


def _last_that_pays(rate: Callable[[int], float], known: int, too_many: int, alone: float) -> int:
    """Among the numbers between, by halves: what a host adds falls with their number."""
    while too_many - known > 1:
        middle = (known + too_many) // 2
        pays = rate(middle) - rate(middle - 1) >= _LEAST_GAIN * alone
        known, too_many = (middle, too_many) if pays else (known, middle)
    return known
