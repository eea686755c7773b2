"""Where the wall time of a run went, by purpose."""

import math

from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    IDLE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    RESTART,
    SHUT_DOWN,
    START_UP,
    UNEXPLAINED,
)
from paceline.record.story import Attempt

_TRAINING = (INPUT, COMPUTE, NETWORK, OPTIMIZER, IDLE)
"""A chief that does not train is idle while the others do."""


def booked_by_purpose(phases: dict[str, float]) -> dict[str, float]:
    """Seconds by purpose; they add up to the wall time."""
    return {
        "training": sum(phases.get(phase, 0.0) for phase in _TRAINING),
        "evaluation": phases.get(EVALUATE, 0.0),
        "checkpoint": phases.get(CHECKPOINT, 0.0),
        "restart": phases.get(RESTART, 0.0),
        "start_up": phases.get(START_UP, 0.0),
        "shut_down": phases.get(SHUT_DOWN, 0.0),
        "unexplained": phases.get(UNEXPLAINED, 0.0),
    }


def idle_seconds(attempts: list[Attempt]) -> float:
    """Between attempts, when nothing ran."""
    spans = sorted((a.started, a.ended) for a in attempts if a.started is not None)
    idle, busy_until = 0.0, math.inf
    for started, ended in spans:
        idle += max(started - busy_until, 0.0)
        busy_until = ended if busy_until == math.inf else max(busy_until, ended)
    return idle


def failed_start_up_seconds(attempts: list[Attempt]) -> float:
    """Wall time of attempts that never reached the loop."""
    last = max((a.number for a in attempts), default=0)
    return sum(a.wall_seconds for a in attempts if not a.booked_seconds and a.number != last)
