"""How busy the machines were, from probes and counts of arithmetic, or can have been at most."""

import math

from paceline.record.schema import INPUT, NETWORK
from paceline.report.facts.facts import Facts

_LEAST_WAIT = 0.05


def achieved_flops(facts: Facts) -> float | None:
    flops, times = facts.begin.get("flops_per_unit"), facts.step_times
    if not isinstance(flops, int | float) or times is None or times.units_per_second is None:
        return None
    return float(flops) * times.units_per_second


def utilisation(facts: Facts) -> tuple[float, str]:
    """Mean over hosts, and of what. How busy a device was is not told by the cores beside it."""
    hosts = facts.world.hosts
    devices = [use.device_share for use in hosts if math.isfinite(use.device_share)]
    if devices or (facts.is_own and is_on_cuda(facts)):
        return (sum(devices) / len(devices) if devices else math.nan), "devices"
    cores = [use.cpu_share for use in hosts if math.isfinite(use.cpu_share)]
    return (sum(cores) / len(cores), "cores") if cores else (math.nan, "devices")


def is_on_cuda(facts: Facts) -> bool:
    return str(facts.begin.get("device", "")).startswith("cuda")


def longest_wait(facts: Facts) -> tuple[str, float] | None:
    """What a step waits for most, and the share: so long nothing was computed."""
    names = {INPUT: "input", NETWORK: "the network"}
    waits = [(names[n], min(s, 1.0)) for n, s in facts.verdict.shares.items() if n in names]
    name, share = max(waits, key=lambda wait: wait[1], default=("", 0.0))
    return (name, share) if share >= _LEAST_WAIT else None
