"""From what a run, or another tool's log, tells of itself to the figures of the model."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from paceline.errors import UserError
from paceline.pace.exchange import PAYLOAD, Size
from paceline.pace.job import (
    GLOO_COPYING,
    MEASURED,
    NCCL_COPYING,
    RING,
    TREE,
    Exchange,
    Figure,
    Job,
    Link,
    Part,
    Schedule,
)
from paceline.pace.model import step_time
from paceline.pace.predict import draws_of
from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER, UNEXPLAINED
from paceline.report.facts.busyness import is_on_cuda
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import link_of, ring_bytes
from paceline.report.facts.saving import cost_of_save
from paceline.report.facts.world_times import Numbers, WorldTimes
from paceline.units import format_bits, format_seconds

LAN_LATENCY: Final = Figure(100e-6, 0.7, "usual on Ethernet, with waking up")
LEAST_STEPS: Final = 10
_PHASES: Final = (INPUT, COMPUTE, NETWORK, OPTIMIZER, UNEXPLAINED)
_FELT_SHARE: Final = 0.05
"""Of a step: whoever waits longer for a batch waits for the loader."""
_LOG_SPREAD: Final = 0.08
"""What a log leaves open about a step: how much of it was waiting for others."""
_WAITING_DOUBT: Final = 0.1
"""Of what a log's hosts sent: how much of it they may have waited more or less."""
_CALIBRATED: Final = 0.05
_USUAL_JITTER: Final = Figure(0.02, 0.5, "assumed: nobody measured single steps")
_OF_ALL: Final = 0.1
"""Of the stretches of a run, the slowest and the fastest: what disturbed them is no part of the
job. And of its steps, the first: caches are cold and loaders find their number."""


def job_of(facts: Facts, gradient_bytes: float | None = None) -> Job:
    refuse_what_says_too_little(facts)
    step = _step_by_phase(facts)
    processes = facts.world.size or 1
    unit, units = _units(facts)
    on_process = units / processes
    told = _told_by(facts)
    spread = MEASURED if facts.world.times is not None else _LOG_SPREAD
    waits_for_loader = step[INPUT] > _FELT_SHARE * sum(step.values())
    loader = Figure(on_process / sum(step.values()), spread, told) if waits_for_loader else None
    return Job(
        unit=unit,
        units_per_step=units,
        grows_with_world=_grows_with_world(facts),
        measured_processes=processes,
        devices_per_host=max(1, processes // (facts.world.num_hosts or 1)),
        compute=_compute(step, on_process, spread, told),
        update=Figure(step[OPTIMIZER], spread, told),
        gradient_bytes=_gradients(facts, gradient_bytes),
        jitter=_jitter(facts),
        exchange=_exchange(facts, step),
        input_rate=loader,
        input_wait=0.0 if waits_for_loader else step[INPUT],
        micro_batches=_micro_batches(facts),
        num_parameters=facts.num_parameters,
        checkpoint_bytes=_checkpoint_bytes(facts),
        flops_per_unit=_number(facts.begin.get("flops_per_unit")),
        schedule=_schedule(facts),
        named=str(facts.run),
    )


def _units(facts: Facts) -> tuple[str, float]:
    """What a step is counted in, and how much of it a step has; batches where nobody knows."""
    if facts.num_units:
        return facts.unit, facts.num_units / facts.num_steps
    batch = facts.data.global_batch
    return ("sample", float(batch)) if batch else ("batch", float(facts.world.size or 1))


def _compute(step: dict[str, float], on_process: float, spread: float, told: str) -> Figure:
    """Of a log, what is left beside sending, and as uncertain as how long that was waited for."""
    own = step[COMPUTE] + step[UNEXPLAINED]
    if spread > MEASURED:
        spread = min(math.hypot(spread, _WAITING_DOUBT * step[NETWORK] / max(own, 1e-9)), 1.0)
    return Figure(own / on_process, spread, told)


def refuse_what_says_too_little(facts: Facts) -> None:
    if facts.num_steps < LEAST_STEPS or not facts.verdict.step_seconds:
        ended = f"; it {facts.reason}" if facts.reason.startswith("failed") else ""
        raise UserError(
            f"{facts.run} tells the time of {facts.num_steps:,} steps, too few to plan from{ended}",
            f"let it train for {LEAST_STEPS} steps or more; a log must tell how long steps take",
        )
    several = (facts.world.num_hosts or 1) > 1 and facts.world.times is None
    if several and not link_of(facts):
        raise UserError(
            f"{facts.run} does not tell how much of a step its hosts waited for each other",
            "give the speed of the links that they had: --link 1Gbit",
        )


def _told_by(facts: Facts) -> str:
    return f"measured in {facts.run}" if facts.is_own else f"the log {facts.run}"


def _step_by_phase(facts: Facts) -> dict[str, float]:
    """Seconds of a step; of a log, what is known to be waiting is taken off the whole."""
    if facts.world.times is not None:
        return typical_step(facts.world.times)
    whole = facts.verdict.step_seconds
    step = {phase: facts.verdict.shares.get(phase, 0.0) * whole for phase in _PHASES}
    step[NETWORK] = _sending_in_log(facts, whole - step[INPUT])
    step[COMPUTE] = max(whole - step[INPUT] - step[NETWORK] - step[OPTIMIZER], 0.0)
    return step


def typical_step(times: WorldTimes) -> dict[str, float]:
    """By phase, the mean over ranks and over the steps that nothing disturbed."""
    chosen = _undisturbed(times)
    weights = times.num_steps * chosen
    return {
        phase: float((np.nanmean(times.of(phase), axis=0) * weights).sum() / weights.sum())
        for phase in _PHASES
    }


def _undisturbed(times: WorldTimes) -> Numbers:
    """For each stretch 1 or 0."""
    steps = np.cumsum(times.num_steps)
    warm = steps > _OF_ALL * steps[-1] if len(steps) >= LEAST_STEPS else np.ones(len(steps), bool)
    totals = np.nanmean(times.of(*_PHASES), axis=0)
    if len(steps) >= LEAST_STEPS:
        low, high = np.percentile(totals[warm], [100 * _OF_ALL, 100 * (1 - _OF_ALL)])
        warm &= (totals >= low) & (totals <= high)
    return warm.astype(np.float64)


def _sending_in_log(facts: Facts, at_most: float) -> float:
    link, gradients = link_of(facts), facts.world.gradient_bytes
    if not link or not gradients or (facts.world.num_hosts or 1) < 2:
        return 0.0
    needed = 8 * ring_bytes(facts.world.size or 1, gradients) / (PAYLOAD * link)
    if needed > at_most:
        raise UserError(
            f"{facts.run} cannot have had links of {format_bits(link)}: sending alone would take "
            f"{format_seconds(needed)} of a step of {format_seconds(at_most)}",
            "give the speed that they had with --link; `paceline report` shows what the log proves",
        )
    return needed


def _grows_with_world(facts: Facts) -> bool:
    """Of a script or a log, each process has a loader of its own with a batch of its own."""
    batch = facts.settings.get("batch")
    if not isinstance(batch, dict):
        return True
    return bool(batch.get("per_device"))


def _exchange(facts: Facts, step: dict[str, float]) -> Exchange:
    if is_on_cuda(facts) or not facts.is_own:
        return Exchange(copying=NCCL_COPYING, algorithms=(RING, TREE))
    processors = _busy_processors(facts, step)
    copying = replace(GLOO_COPYING, value=GLOO_COPYING.value / min(processors, 1.0))
    known = Exchange(copying, max(processors, 1.0))
    parts = tuple(Part(num_bytes, share) for num_bytes, share in facts.world.gradients_ready)
    return replace(known, parts=parts, parts_how=_told_by(facts)) if parts else known


def _busy_processors(facts: Facts, step: dict[str, float]) -> float:
    """That each process kept busy while it did not wait: 0.45 of one where it may have no more."""
    busy = (facts.world.size or 1) * facts.num_steps
    busy_seconds = busy * (step[COMPUTE] + step[OPTIMIZER] + step[UNEXPLAINED])
    known = facts.world.step_cpu_seconds
    return min(max(known / busy_seconds, 0.1), 64.0) if known and busy_seconds > 0 else 1.0


def _gradients(facts: Facts, given: float | None) -> Figure | None:
    if given:
        return Figure(given, 0.0, "given with --gradients")
    known = facts.world.gradient_bytes
    if known:
        return Figure(known, 0.0, facts.world.gradient_how or _told_by(facts))
    told = _number(facts.begin.get("gradient_bytes"))
    if told:
        return Figure(told, 0.0, _told_by(facts))
    if facts.num_parameters:
        return Figure(4.0 * facts.num_parameters, 0.0, "4 bytes for each parameter")
    return None


def _jitter(facts: Facts) -> Figure:
    """Of single steps, by their quartiles: a few very slow steps are no spread of all."""
    times = facts.step_times
    if times is None or times.steps_per_timing != 1 or len(times.timings) < LEAST_STEPS:
        return _USUAL_JITTER
    low, middle, high = np.percentile(np.asarray(times.timings, dtype=np.float64), [25, 50, 75])
    deviation = (high - low) / 1.349 / middle if middle > 0 else 0.0
    source = f"half the spread of {len(times.timings):,} steps; the rest befalls all alike"
    return Figure(float(deviation) / 2, 0.3, source)


def calibrated(job: Job, facts: Facts) -> Job:
    """What several processes waited for each other tells how far the formulas are off here."""
    link, times = link_of(facts), facts.world.times
    hosts = facts.world.num_hosts or 1
    if times is None or job.measured_processes < 2 or (hosts > 1 and not link):
        return job
    speed = Figure(link or 1e9, 0.0, "the run's own")
    size = Size(hosts, job.measured_processes // hosts)
    draws = draws_of(job, Link(speed, replace(LAN_LATENCY, spread=0.0)))
    expected = float(np.median(step_time(job, size, draws).phases[NETWORK]))
    if expected <= 0:
        return job
    factor = typical_step(times)[NETWORK] / expected
    return replace(job, network=Figure(factor, _CALIBRATED, _told_by(facts)))


def _micro_batches(facts: Facts) -> int | None:
    found = facts.begin.get("micro_batches_per_step")
    return int(found) if isinstance(found, int) and found > 0 else None


def _checkpoint_bytes(facts: Facts) -> float | None:
    if facts.saving.newest is not None:
        return float(facts.saving.newest.total_bytes)
    if facts.saving.files is not None:
        return float(facts.saving.files.num_bytes)
    return facts.saving.predicted_bytes


def _schedule(facts: Facts) -> Schedule | None:
    """A script never says how many steps it wants: as many as it did."""
    steps = facts.steps_wanted or (facts.step if facts.is_observed else None)
    if not steps:
        return None
    evaluations = len({score.step for score in facts.learning.scores})
    one = cost_of_save(facts.saving.cost)
    return Schedule(
        steps=steps,
        start_up_seconds=facts.booked.get("start_up", facts.phases.get("start-up", 0.0)),
        evaluation_seconds=facts.phases.get("evaluate", 0.0) / max(evaluations, 1),
        evaluate_every=_every(facts.settings.get("evaluate")),
        save_seconds=one.seconds if one else 0.0,
        save_every=_save_every(facts),
    )


def _save_every(facts: Facts) -> int | None:
    """As set; else as often as it was done."""
    saves = facts.saving.cost.num_saves
    return facts.saving.every_steps or (facts.num_steps // saves if saves else None) or None


def _every(section: Any) -> int | None:
    every = section.get("every_steps") if isinstance(section, dict) else None
    return every if isinstance(every, int) and every > 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
