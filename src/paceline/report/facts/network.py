"""Bytes on the wire: what was measured, and what a ring all-reduce has to send. Pure arithmetic."""

import math

from paceline.report.facts.busyness import is_on_cuda
from paceline.report.facts.facts import Facts

LOOPBACK = "lo"


def link_of(facts: Facts) -> float | None:
    """Bits per second: what the user said, else the slowest that an interface said of itself."""
    if facts.options.link_bits_per_second:
        return facts.options.link_bits_per_second
    known = [use.link_bits_per_second for use in facts.world.hosts if use.link_bits_per_second]
    return min(known) if known and not _is_loopback(facts) else None


def _is_loopback(facts: Facts) -> bool:
    hosts = facts.world.hosts
    return bool(hosts) and all(use.interface == LOOPBACK for use in hosts)


def sent_per_step(facts: Facts) -> float | None:
    """Bytes that one host sent per step, the mean over hosts."""
    hosts = facts.world.hosts
    known = [use.sent_bytes_per_step for use in hosts if math.isfinite(use.sent_bytes_per_step)]
    return sum(known) / len(known) if known else None


def ring_bytes(world_size: int, gradient_bytes: float) -> float:
    """Bytes that each of N processes sends to its neighbour in a step: 2 (N-1)/N of the gradients.

    Neighbours on one host talk through memory and the ring leaves each host once, so this is also
    what goes through each host's link.
    """
    return 2 * (world_size - 1) / world_size * gradient_bytes


def is_inside_one_host(facts: Facts) -> bool:
    """Whether no byte of the exchange is on any network: NCCL copies between the devices of a host
    directly or through shared memory, where Gloo takes the loopback interface."""
    return facts.is_own and is_on_cuda(facts) and facts.world.num_hosts == 1


def predicted_per_step(facts: Facts) -> float | None:
    """Bytes that a ring all-reduce sends from one host per step.

    Within one host all N processes send over the loopback interface, which counts them all.
    """
    size, gradients = facts.world.size, facts.world.gradient_bytes
    if gradients is None or size is None or size < 2 or is_inside_one_host(facts):
        return None
    per_process = ring_bytes(size, gradients)
    return per_process * size if facts.world.num_hosts == 1 else per_process


def seconds_on_link(facts: Facts) -> float | None:
    """How long a step's ring all-reduce takes on the link, if it leaves the host at all. Beside a
    foreign log, what counters saw on the interface is believed before the prediction."""
    link, sent = link_of(facts), predicted_per_step(facts)
    if not facts.is_own and sent_per_step(facts) is not None:
        sent = sent_per_step(facts)
    if not link or sent is None or facts.world.num_hosts == 1:
        return None
    return 8 * sent / link


MOST_OF_STEP = 1.05
"""Times, a step's gradients on the link: more cannot be, however well sending is hidden. Times are
rounded and steps differ a little."""


def is_link_impossible(facts: Facts) -> bool:
    """Whether the link that the user named cannot have carried what was sent."""
    return _share_of_step(facts) > MOST_OF_STEP


def _share_of_step(facts: Facts) -> float:
    step_seconds, link = facts.verdict.step_seconds, facts.options.link_bits_per_second
    if not link or not step_seconds:
        return 0.0
    if facts.is_own:
        sent = sent_per_step(facts)
        return 8 * sent / link / step_seconds if sent and facts.world.num_hosts != 1 else 0.0
    return (seconds_on_link(facts) or 0.0) / step_seconds


def slowest_possible_link(facts: Facts) -> float:
    """Bits per second that the link must have carried at least."""
    return (facts.options.link_bits_per_second or 0.0) * _share_of_step(facts)
