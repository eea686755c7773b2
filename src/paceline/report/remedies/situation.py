"""A run as the model sees it, and what several kinds of remedies ask about it."""

from typing import Final

from paceline.errors import UserError
from paceline.pace.exchange import Size
from paceline.pace.job import Figure, Link
from paceline.pace.remedies import Change, Situation, faster_compute, less_waiting
from paceline.record.schema import NETWORK
from paceline.report.facts.busyness import utilisation
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import link_of
from paceline.report.facts.stragglers import Straggler
from paceline.report.remedies.job import LAN_LATENCY, calibrated, job_of
from paceline.units import format_bits

_MARGIN: Final = 1.15
_MOST_TIMES: Final = 8.0
_FULL: Final = 0.95
"""Of the cores: threads beyond that only take them from each other."""
_MUCH_OTHER_LOAD: Final = 0.3
TENSOR_CORES: Final = Figure(2.0, 0.35, "16 bits on tensor cores, usually 1.3 to 3.5 times")


def situation_of(facts: Facts) -> Situation:
    """As the run was. Raises UserError where it does not tell enough."""
    if facts.roles is not None:
        raise UserError("the model of a step is for all-reduce", "not for parameter servers")
    job = calibrated(job_of(facts), facts)
    hosts, speed = facts.world.num_hosts or 1, link_of(facts)
    if hosts > 1 and not speed:
        raise UserError("the speed of the links is not known", "give it, e.g. `--link 1Gbit`")
    link = Link(Figure(speed or 1e9, 0.03, "the run's own"), LAN_LATENCY)
    return Situation(job, link, Size(hosts, max(1, (facts.world.size or 1) // hosts)))


def times_the_workers(now: Situation | None) -> float:
    """So many more that they keep up with the model, with a margin."""
    rate = now.job.input_rate if now else None
    if now is None or rate is None:
        return 2.0
    job = now.job
    on_process = job.units_per_step / now.size.processes
    work = on_process * job.compute.value + job.update.value
    wanted = _MARGIN * on_process / rate.value / max(work, 1e-9)
    return min(max(wanted, 1.5), _MOST_TIMES)


def cores_are_full(facts: Facts) -> bool:
    share, what = utilisation(facts)
    return what == "cores" and share >= _FULL


def cores_of_others(facts: Facts) -> float:
    """Share that other programs used, where that is much; else 0."""
    (share, what), own = utilisation(facts), facts.world.own_cpu_share
    other = share - own if own is not None and what == "cores" else 0.0
    return other if other > _MUCH_OTHER_LOAD else 0.0


def without_others(facts: Facts) -> Change:
    """Between nothing and all of the cores that others had."""
    share = cores_of_others(facts) / max(facts.world.own_cpu_share or 0.0, 0.05)
    return faster_compute(Figure((1 + share) ** 0.5, 0.2, "the cores that others had"))


def without_straggler(facts: Facts, late: Straggler) -> Change:
    """Nobody waits for it any more, as far as that was waiting for it."""
    ranks = facts.world.size or 1
    waited = late.seconds_per_step * (ranks - 1) / ranks
    times = facts.world.times
    network = times.per_step(NETWORK) if times else waited
    return less_waiting(min(waited / max(network, 1e-9), 1.0))


def ten_times_the_link(facts: Facts) -> str:
    speed = link_of(facts)
    return format_bits(10 * speed) if speed else "ten times the speed"
