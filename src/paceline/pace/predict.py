"""From figures with their uncertainty to predictions with theirs, for each number of hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from paceline.pace.job import Figure, Job, Link
from paceline.pace.model import Draws, Numbers, Size, StepTime, ring_bytes, step_time, wire_seconds
from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER

_NUM_DRAWS: Final = 4000
_SEED: Final = 20260101
_LOW, _HIGH = 5.0, 95.0
_MODEL_SPREAD: Final = 0.04
"""What the formulas leave out, at a size that was not measured."""
_LEAST_SHARE: Final = 0.25
"""From which share of a step on something is called the bottleneck; as in reports."""
_LEAST_GAIN: Final = 0.25
"""Of a host: one that adds less to the speed is called waste."""
_MOST_HOSTS: Final = 4096


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
    wire_seconds: float
    bottleneck: str
    total_seconds: Range | None = None
    """To the recipe's last step, evaluations and saves included."""
    cost: Range | None = None
    why_not: str = ""
    """Why so many processes cannot train this job at all; the figures then mean nothing."""


def draws_of(job: Job, link: Link) -> Draws:
    """The same random numbers for every size, so that sizes are compared and not luck."""
    luck = np.random.default_rng(_SEED)

    def drawn(figure: Figure) -> Numbers:
        factors = np.exp(luck.normal(0.0, figure.spread, _NUM_DRAWS))
        return np.asarray(figure.value * factors, dtype=np.float64)

    gradients = job.gradient_bytes or Figure(0.0, 0.0, "")
    return Draws(
        compute=drawn(job.compute),
        update=drawn(job.update),
        gradient_bytes=drawn(gradients),
        overlap=np.clip(drawn(job.overlap), 0.0, 1.0),
        exchange=drawn(job.exchange),
        jitter=drawn(job.jitter),
        network=drawn(job.network),
        input_rate=drawn(job.input_rate) if job.input_rate else None,
        bits_per_second=drawn(link.bits_per_second),
        latency_seconds=drawn(link.latency_seconds),
    )


def predict(
    job: Job, link: Link, sizes: Sequence[Size], price_per_hour: float | None = None
) -> list[Prediction]:
    draws = draws_of(job, link)
    alone = _rate(step_time(job, Size(1, job.devices_per_host), draws))
    return [_predict_one(job, size, draws, alone, price_per_hour) for size in sizes]


def _rate(found: StepTime) -> Numbers:
    rate: Numbers = found.units / found.seconds
    return rate


def _predict_one(
    job: Job, size: Size, draws: Draws, alone: Numbers, price_per_hour: float | None
) -> Prediction:
    found = step_time(job, size, draws)
    doubt = _doubt(job, size)
    seconds, speed_up = found.seconds * doubt, _rate(found) / doubt / alone
    total = _total(job, found.units, seconds)
    middle = {phase: float(np.median(values)) for phase, values in found.phases.items()}
    return Prediction(
        size=size,
        step_seconds=_range(seconds),
        phases=_adding_up(middle, float(np.median(seconds))),
        units_per_second=_range(found.units / seconds),
        speed_up=_range(speed_up),
        efficiency=float(np.median(speed_up)) / size.hosts,
        sent_bytes_per_step=float(np.median(ring_bytes(size, draws.gradient_bytes))),
        wire_seconds=float(np.median(wire_seconds(size, draws))),
        bottleneck=bottleneck(middle),
        total_seconds=None if total is None else _range(total),
        cost=_cost(total, size, price_per_hour),
        why_not=_why_not(job, size),
    )


def _doubt(job: Job, size: Size) -> Numbers:
    """Factors for what the formulas leave out; none for the size that was measured."""
    if size.processes == job.measured_processes:
        return np.ones(_NUM_DRAWS)
    luck = np.random.default_rng(_SEED + 1)
    return np.asarray(np.exp(luck.normal(0.0, _MODEL_SPREAD, _NUM_DRAWS)), dtype=np.float64)


def _range(values: Numbers) -> Range:
    low, middle, high = np.percentile(values, [_LOW, 50.0, _HIGH])
    return Range(float(middle), float(low), float(high))


def _adding_up(phases: dict[str, float], total: float) -> dict[str, float]:
    """Medians of parts need not add up to the median of the sum; what is printed must."""
    factor = total / sum(phases.values()) if sum(phases.values()) else 1.0
    return {phase: seconds * factor for phase, seconds in phases.items()}


def bottleneck(phases: dict[str, float]) -> str:
    total = sum(phases.values())
    waits = {INPUT: phases[INPUT], NETWORK: phases[NETWORK], OPTIMIZER: phases[OPTIMIZER]}
    worst = max(waits, key=lambda phase: waits[phase])
    return worst if total and waits[worst] >= _LEAST_SHARE * total else COMPUTE


def _total(job: Job, units: float, step_seconds: Numbers) -> Numbers | None:
    """Steps of a batch that grows with the world are fewer for the same samples."""
    plan = job.schedule
    if plan is None or not plan.steps:
        return None
    steps = plan.steps * job.units_per_step / units
    between = 0.0
    if plan.evaluate_every:
        between += plan.evaluation_seconds / plan.evaluate_every
    if plan.save_every:
        between += plan.save_seconds / plan.save_every
    return np.asarray(plan.start_up_seconds + steps * (step_seconds + between), dtype=np.float64)


def _cost(total: Numbers | None, size: Size, price_per_hour: float | None) -> Range | None:
    if total is None or price_per_hour is None:
        return None
    return _range(total / 3600 * size.hosts * price_per_hour)


def _why_not(job: Job, size: Size) -> str:
    if job.micro_batches and not job.grows_with_world and size.processes > job.micro_batches:
        return (
            f"a step has {job.micro_batches} micro-batches, too few for {size.processes} processes"
        )
    return ""


def most_useful_hosts(job: Job, link: Link, devices: int) -> int:
    """From this number on, another host adds less than a quarter of a host to the speed."""
    draws = draws_of(job, link)
    sizes = [1 << power for power in range(_MOST_HOSTS.bit_length())]
    if job.micro_batches and not job.grows_with_world:
        sizes = [hosts for hosts in sizes if hosts * devices <= job.micro_batches] or [1]
    rates = [float(np.median(_rate(step_time(job, Size(n, devices), draws)))) for n in sizes]
    for number in range(1, len(sizes)):
        added = (rates[number] - rates[number - 1]) / (sizes[number] - sizes[number - 1])
        if added < _LEAST_GAIN * rates[0]:
            return _between(job, draws, devices, (sizes[number - 1], sizes[number]), rates[0])
    return sizes[-1]


def _between(job: Job, draws: Draws, devices: int, ends: tuple[int, int], alone: float) -> int:
    """Among the numbers between two powers of two, the last whose host still pays."""
    best, before = ends[0], float(np.median(_rate(step_time(job, Size(ends[0], devices), draws))))
    for hosts in range(ends[0] + 1, min(ends[1], ends[0] + 64) + 1):
        rate = float(np.median(_rate(step_time(job, Size(hosts, devices), draws))))
        if (rate - before) < _LEAST_GAIN * alone:
            return best
        best, before = hosts, rate
    return best
