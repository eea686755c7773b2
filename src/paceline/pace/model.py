"""How long a step takes on so many hosts: an analytic model. Pure arithmetic; see docs/model.md.

Every function takes numbers or arrays of draws alike, so that uncertain figures go through the same
formulas as certain ones.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from paceline.pace.exchange import BACKWARD_SHARE, Numbers, Size, Wire, exchanged
from paceline.pace.job import Job
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK, OPTIMIZER


@dataclass(frozen=True)
class Draws:
    """The job's and the link's figures, each as a number or as an array of possible values."""

    compute: Numbers
    update: Numbers
    gradient_bytes: Numbers
    fixed: Numbers
    jitter: Numbers
    network: Numbers
    room: Numbers
    """Share of the update and the next forward pass beside which gradients may still travel."""
    input_rate: Numbers | None
    wire: Wire


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

    @property
    def rate(self) -> Numbers:
        """Units a second."""
        rate: Numbers = self.units / self.seconds
        return rate


def units_of(job: Job, size: Size) -> tuple[float, float]:
    """Of a step: in the whole world, and on the process that has most."""
    if job.grows_with_world:
        share = job.units_per_step / job.measured_processes
        return share * size.processes, share
    if not job.micro_batches:
        return job.units_per_step, job.units_per_step / size.processes
    most = -(-job.micro_batches // size.processes)
    return job.units_per_step, job.units_per_step * most / job.micro_batches


def slowest_of(count: int) -> float:
    """By how many standard deviations the slowest of so many is slower than the mean (Blom)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def step_time(job: Job, size: Size, draws: Draws) -> StepTime:
    in_world, on_process = units_of(job, size)
    pure = draws.compute * (on_process + draws.fixed * _lacking_units(job, on_process))
    sent = exchanged(
        size, draws.gradient_bytes, pure / _passes(job, size), job.exchange, draws.wire
    )
    compute = pure + sent.beside
    least = sent.last if job.exchange.lasts == "next forward" else 0.0
    waited = np.maximum(sent.exposed - _room_after_backward(job, compute, draws), least)
    # What travels beside other work is copied beside it, too.
    hidden_later = np.maximum(sent.exposed - waited, 0.0) / np.maximum(sent.wire, 1e-12)
    compute = compute + sent.copying * hidden_later
    late = compute * draws.jitter * slowest_of(size.processes)
    small = _small_message_seconds(size, draws.wire)
    network = draws.network * (waited + late + small)
    busy = compute + network + draws.update
    measured = job.units_per_step / job.measured_processes
    waiting = np.full_like(busy, job.input_wait * on_process / measured)
    if draws.input_rate is not None:
        waiting = waiting + np.maximum(on_process / draws.input_rate - busy, 0.0)
    phases = {
        INPUT: waiting,
        COMPUTE: compute,
        NETWORK: network,
        OPTIMIZER: draws.update,
        CHECKPOINT: np.full_like(busy, _saving_per_step(job)),
    }
    return StepTime(phases, sent.wire, in_world)


def _room_after_backward(job: Job, compute: Numbers, draws: Draws) -> Numbers:
    """Seconds of a step in which gradients may still be on their way and nobody waits for them."""
    lasts = job.exchange.lasts
    if lasts == "backward":
        return 0 * compute
    if lasts == "next forward":
        return draws.room * ((1 - BACKWARD_SHARE) * compute + draws.update)
    return compute + draws.update


def _lacking_units(job: Job, on_process: float) -> float:
    """By how many units a pass is smaller than it was when it was measured; those of micro-batches
    are as large whatever their number."""
    if job.micro_batches:
        return 0.0
    return max(job.units_per_step / job.measured_processes - on_process, 0.0)


def _passes(job: Job, size: Size) -> float:
    """Of a process in a step, forward and backward: gradients go around with the last."""
    if not job.micro_batches:
        return 1.0
    in_world, on_process = units_of(job, size)
    micro = job.micro_batches * (in_world / job.units_per_step)
    return max(1.0, on_process / (in_world / micro))


def _small_message_seconds(size: Size, wire: Wire) -> Numbers:
    """A few numbers (the loss, running averages) go around in every step as well."""
    waits: Numbers = 2 * (size.hosts - 1) * wire.latency_seconds
    return waits


def _saving_per_step(job: Job) -> float:
    plan = job.schedule
    return plan.save_seconds / plan.save_every if plan and plan.save_every else 0.0
