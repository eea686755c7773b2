"""How long a step takes on so many hosts: an analytic model. Pure arithmetic; see docs/model.md.

Every function takes numbers or arrays of draws alike, so that uncertain figures go through the same
formulas as certain ones.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from paceline.pace.job import Job
from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER

Numbers = NDArray[np.float64]

PAYLOAD: Final = 0.94
"""Of a line's bits: what is left for data after the headers of Ethernet, IP and TCP."""
BUCKET_BYTES: Final = 25 * 1024 * 1024
"""DDP sends gradients in buckets of this size; the last one cannot hide behind anything."""
INSIDE_BYTES_PER_SECOND: Final = 10e9
"""Between the devices of a host, where nothing better is known: PCI Express 3."""
BACKWARD_SHARE: Final = 2 / 3
"""Of forward and backward: backward computes two products where forward computes one."""


@dataclass(frozen=True)
class Size:
    """How many hosts, and how many processes (one per device) on each."""

    hosts: int
    devices: int = 1

    @property
    def processes(self) -> int:
        return self.hosts * self.devices


@dataclass(frozen=True)
class Draws:
    """The job's and the link's figures, each as a number or as an array of possible values."""

    compute: Numbers
    update: Numbers
    gradient_bytes: Numbers
    overlap: Numbers
    exchange: Numbers
    jitter: Numbers
    network: Numbers
    input_rate: Numbers | None
    bits_per_second: Numbers
    latency_seconds: Numbers


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step by phase, as arrays."""

    phases: dict[str, Numbers]
    wire: Numbers
    """Of the network: what the link alone needs, hidden or not."""
    units: float
    """In the step, of the whole world."""

    @property
    def seconds(self) -> Numbers:
        total: Numbers = np.sum(list(self.phases.values()), axis=0)
        return total


def units_of(job: Job, size: Size) -> tuple[float, float]:
    """Of a step: in the whole world, and on the process that has most."""
    if job.grows_with_world:
        share = job.units_per_step / job.measured_processes
        return share * size.processes, share
    if not job.micro_batches:
        return job.units_per_step, job.units_per_step / size.processes
    most = -(-job.micro_batches // size.processes)
    return job.units_per_step, job.units_per_step * most / job.micro_batches


def ring_bytes(size: Size, gradient_bytes: Numbers) -> Numbers:
    """That leave each host in a step: the ring passes through a host's devices and leaves it once.

    2 (N-1)/N of the gradients for N processes; nothing where all of them are on one host.
    """
    if size.hosts == 1:
        return 0 * gradient_bytes
    return 2 * (size.processes - 1) / size.processes * gradient_bytes


def wire_seconds(size: Size, draws: Draws) -> Numbers:
    """What the all-reduce of a step takes if nothing hides it."""
    if size.processes == 1:
        return 0 * draws.gradient_bytes
    buckets = np.ceil(draws.gradient_bytes / BUCKET_BYTES)
    inside = 2 * (size.devices - 1) / size.devices * draws.gradient_bytes / INSIDE_BYTES_PER_SECOND
    # Copies and sums of one bucket go on while the next is on the wire.
    beside = draws.exchange * np.minimum(draws.gradient_bytes, BUCKET_BYTES)
    if size.hosts == 1:
        return inside + draws.exchange * draws.gradient_bytes
    on_link = 8 * ring_bytes(size, draws.gradient_bytes) / (PAYLOAD * draws.bits_per_second)
    messages = 2 * (size.processes - 1) * buckets * draws.latency_seconds
    seconds: Numbers = on_link + messages + beside + inside
    return seconds


def hidden_seconds(wire: Numbers, last_backward: Numbers, draws: Draws) -> Numbers:
    """Buckets are sent while backward goes on, all but the last one."""
    last = np.minimum(BUCKET_BYTES / np.maximum(draws.gradient_bytes, 1.0), 1.0)
    hidden: Numbers = np.minimum(wire * (1 - last), draws.overlap * last_backward)
    return hidden


def slowest_of(count: int) -> float:
    """By how many standard deviations the slowest of so many is slower than the mean (Blom)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def step_time(job: Job, size: Size, draws: Draws) -> StepTime:
    in_world, on_process = units_of(job, size)
    compute = draws.compute * on_process
    passes = max(1.0, on_process / (in_world / job.micro_batches)) if job.micro_batches else 1.0
    wire = wire_seconds(size, draws)
    exposed = wire - hidden_seconds(wire, BACKWARD_SHARE * compute / passes, draws)
    late = compute * draws.jitter * slowest_of(size.processes)
    network = draws.network * (exposed + late)
    busy = compute + network + draws.update
    waiting = np.full_like(busy, job.input_wait)
    if draws.input_rate is not None:
        waiting = waiting + np.maximum(on_process / draws.input_rate - busy, 0.0)
    phases = {INPUT: waiting, COMPUTE: compute, NETWORK: network, OPTIMIZER: draws.update}
    return StepTime(phases, wire, in_world)
