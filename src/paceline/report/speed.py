"""How fast a run was, and two of them side by side: figures, and the sentences about speed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.record.schema import COMPUTE, NETWORK
from paceline.report.answers.words import listed
from paceline.report.facts.facts import Facts
from paceline.report.facts.world_times import LOOP
from paceline.units import count_of, format_seconds, percent, plural

_PER_UNITS = 1000
MOST_GAIN = 1.15
"""Times perfect scaling: caches may help a little, but not more than that."""
_FEW = 0.1
_SAME = 0.005
_PERFECT = 0.97
"""Of perfect scaling: what is lost below that is worth a word."""


@dataclass(frozen=True)
class Speed:
    """One run, reduced to what a comparison needs."""

    run: str
    unit: str
    world_size: int
    num_hosts: int
    num_steps: int
    units_per_second: float
    step_seconds: float
    seconds_per_1000_units: dict[str, float]
    """By phase of the loop: wall time, so that more processes make it less."""
    cpu_seconds_per_1000_units: float
    may_spin: bool
    """Threads that wait for each other may burn CPU time meanwhile."""
    wall_seconds: float
    num_threads: int | None
    """Of all processes together, where they share one host."""
    verdict: str
    is_world_known: bool = True
    are_hosts_known: bool = True

    @property
    def loop_seconds_per_1000_units(self) -> float:
        known = [value for value in self.seconds_per_1000_units.values() if math.isfinite(value)]
        return sum(known) if known else math.nan


SAMPLE, EPOCH, STEP = "sample", "epoch", "step"


def speeds_of(runs: list[Facts]) -> list[Speed]:
    """All in one unit: what they count themselves, else samples, epochs or steps, whatever is known
    of all. Epochs are of the same data, as far as the logs tell."""
    units = {facts.unit for facts in runs}
    if len(units) > 1 and any(facts.is_observed for facts in runs):
        return [_speed(facts, STEP, 1.0) for facts in runs]
    if all(facts.is_own for facts in runs):
        return [_speed(facts, facts.unit, _own_units(facts)) for facts in runs]
    batches = [facts.data.global_batch for facts in runs]
    if all(batches):
        return [_speed(f, SAMPLE, float(b or 0)) for f, b in zip(runs, batches, strict=True)]
    epochs = [facts.data.steps_per_epoch for facts in runs]
    if all(epochs):
        return [_speed(f, EPOCH, 1 / (e or 1)) for f, e in zip(runs, epochs, strict=True)]
    return [_speed(facts, STEP, 1.0) for facts in runs]


def _own_units(facts: Facts) -> float:
    return facts.num_units / max(facts.num_steps, 1)


def speed_of(facts: Facts) -> Speed:
    return speeds_of([facts])[0]


def _speed(facts: Facts, unit: str, units_per_step: float) -> Speed:
    num_steps = max(facts.num_steps, 1)
    step_seconds = facts.verdict.step_seconds
    per_1000 = _PER_UNITS / units_per_step if units_per_step else math.nan
    threads = facts.environment.get("threads")
    return Speed(
        run=str(facts.run),
        unit=unit,
        world_size=(facts.world.size or 1),
        num_hosts=(facts.world.num_hosts or 1),
        num_steps=facts.num_steps,
        units_per_second=units_per_step / step_seconds if step_seconds else math.nan,
        step_seconds=step_seconds,
        seconds_per_1000_units={phase: _seconds_in(facts, phase) * per_1000 for phase in LOOP},
        cpu_seconds_per_1000_units=facts.world.step_cpu_seconds / num_steps * per_1000,
        may_spin=_may_spin(facts),
        wall_seconds=facts.wall_seconds,
        num_threads=threads * (facts.world.size or 1) if isinstance(threads, int) else None,
        verdict=facts.verdict.word,
        is_world_known=facts.world.size is not None,
        are_hosts_known=facts.world.num_hosts is not None or facts.world.size == 1,
    )


def _seconds_in(facts: Facts, phase: str) -> float:
    """Per step; of a log as far as it tells shares."""
    if facts.world.times is not None:
        return facts.world.times.per_step(phase)
    share = facts.verdict.shares.get(phase)
    return math.nan if share is None or facts.is_own else share * facts.verdict.step_seconds


def _may_spin(facts: Facts) -> bool:
    """One thread has no other to wait for; more of them spin unless they were told not to."""
    settings = facts.environment.get("settings")
    told = settings if isinstance(settings, dict) else {}
    is_passive = told.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    sleeps = is_passive or told.get("GOMP_SPINCOUNT") == "0" or told.get("KMP_BLOCKTIME") == "0"
    return facts.environment.get("threads") != 1 and not sleeps


def ratio_of(base: Speed, now: Speed) -> float:
    return now.units_per_second / base.units_per_second


def too_good(base: Speed, now: Speed) -> str:
    """Which of the two was held back, if the other is better than perfect scaling; else nothing."""
    perfect, ratio = now.world_size / base.world_size, ratio_of(base, now)
    if not (base.is_world_known and now.is_world_known):
        return ""
    if perfect > 1 and ratio > MOST_GAIN * perfect:
        return base.run
    if perfect < 1 and ratio * MOST_GAIN < perfect:
        return now.run
    return ""


def speed_sentence(base: Speed, now: Speed) -> str:
    ratio = ratio_of(base, now)
    (before, after), word = rates_of((base, now))
    times = "as many" if abs(ratio - 1) < _SAME else f"{ratio:.2f} times as many"
    an = "an" if word == "hour" else "a"
    text = (
        f"{now.run} trained {times} {plural(now.unit)} {an} {word} as {base.run} ({after} to "
        f"{before})"
    )
    if base.unit == EPOCH:
        text += ", if both epochs are of the same data"
    if base.unit == STEP:
        text += ", but a step of the one may be more work than a step of the other"
    unknown = [speed.run for speed in (base, now) if not speed.is_world_known]
    if unknown:
        return f"{text}; how many processes trained is not in the log of {listed(unknown)}."
    processes, hosts = now.world_size / base.world_size, now.num_hosts / base.num_hosts
    if processes == 1 and hosts == 1:
        return f"{text}, with the same number of processes and hosts."
    used = []
    if processes != 1:
        used.append(f"{count_of(now.world_size, 'process')} instead of {base.world_size:,}")
    if hosts != 1:
        used.append(f"{count_of(now.num_hosts, 'host')} instead of {base.num_hosts:,}")
    return f"{text}, with {listed(used)}{_efficiency(ratio, processes, hosts)}."


def rates_of(speeds: Sequence[Speed]) -> tuple[list[str], str]:
    """Units in a second, or in an hour where so few are done, and which of the two."""
    rates = [speed.units_per_second for speed in speeds]
    known = [rate for rate in rates if math.isfinite(rate) and rate > 0]
    scale, word = (3600.0, "hour") if known and min(known) < _FEW else (1.0, "second")
    return [_rate(scale * rate) for rate in rates], word


def _rate(rate: float) -> str:
    if not math.isfinite(rate) or not rate:
        return "-"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _efficiency(ratio: float, processes: float, hosts: float) -> str:
    """Of perfect scaling, where there is more to scale to."""
    rates = [f"{percent(ratio / processes)} per process"] if processes > 1 else []
    rates += [f"{percent(ratio / hosts)} per host"] if hosts > 1 and hosts != processes else []
    return f": a scaling efficiency of {', '.join(rates)}" if rates else ""


def too_good_sentence(base: Speed, now: Speed, is_loading: bool = False) -> str:
    held_back = too_good(base, now)
    if not held_back:
        return ""
    if is_loading:
        return "That is more than perfect scaling, which is not believed to be the machines' doing."
    return (
        "That is more than perfect scaling, which is not believed: something else, such as other "
        f"programs on the machine, slowed {held_back} down."
    )


def phase_sentence(base: Speed, now: Speed) -> str:
    """Which phase took less, and which took more, of the time of one unit."""
    before, after = base.seconds_per_1000_units, now.seconds_per_1000_units
    changes = {phase: after[phase] - before[phase] for phase in LOOP}
    parts = [
        f"{phase} {'shrank' if changes[phase] < 0 else 'grew'} from "
        f"{format_seconds(before[phase])} to {format_seconds(after[phase])}"
        for phase in sorted(LOOP, key=lambda phase: -abs(np.nan_to_num(changes[phase])))
        if abs(changes[phase]) > 0.02 * base.loop_seconds_per_1000_units
    ]
    if base.unit == EPOCH:
        return ""
    if not parts and not all(map(math.isfinite, changes.values())):
        return ""
    if not parts:
        return f"Per {now.unit}, no phase changed by more than 2 % of the time."
    return f"Per 1,000 {plural(now.unit)}, {listed(parts)}.{_lost(base, now)}"


def _lost(base: Speed, now: Speed) -> str:
    """Only of a run that scaled worse than perfectly: nothing is lost in one that did better."""
    processes = now.world_size / base.world_size
    if processes <= 1 or ratio_of(base, now) / processes >= _PERFECT:
        return ""
    wanted = base.seconds_per_1000_units[COMPUTE] / processes
    waited = base.seconds_per_1000_units[NETWORK] / processes
    lost = {
        "compute that did not shrink as the processes grew": now.seconds_per_1000_units[COMPUTE]
        - wanted,
        "waiting for other processes": now.seconds_per_1000_units[NETWORK] - waited,
    }
    worst = max(lost, key=lambda name: lost[name])
    if (
        not math.isfinite(lost[worst])
        or lost[worst] < (1 - _PERFECT) * base.loop_seconds_per_1000_units / processes
    ):
        return ""
    return f" What is lost against perfect scaling is mostly {worst}."


def why_same_differs(base: Speed, now: Speed) -> str:
    """Two runs of the same: what is left to explain a difference."""
    if base.verdict != now.verdict:
        return f"; what held them up differs: {base.verdict} in the first, {now.verdict} here"
    cpu = [speed.cpu_seconds_per_1000_units for speed in (base, now)]
    if base.may_spin or now.may_spin or min(cpu) <= 0 or max(cpu) >= MOST_GAIN * min(cpu):
        return ": the difference is chance or other load on the machine"
    return (
        f", and so is the CPU time of 1,000 {plural(now.unit)} ({format_seconds(cpu[0])} to "
        f"{format_seconds(cpu[1])}): the difference is waiting, for other load on the machine or "
        "for the network"
    )


def shared_differently(base: Speed, now: Speed) -> str:
    """The same hardware, cut into another number of processes; else nothing."""
    both = base.num_hosts == now.num_hosts == 1 and base.world_size != now.world_size
    if not both or base.num_threads is None or base.num_threads != now.num_threads:
        return ""
    cut = [
        f"{count_of(speed.world_size, 'process')} x "
        f"{count_of((speed.num_threads or 1) // speed.world_size, 'thread')}"
        for speed in (base, now)
    ]
    return f"as many threads in all ({cut[0]}, {cut[1]})"
