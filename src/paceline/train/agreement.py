"""All processes stop, and save by the clock, after the same step.

Asking all of them takes a message around the world, which every host waits for. So they ask after
every step only where steps are long; otherwise about as often as a person would notice. The next
time is part of what is agreed on: every process counts the same steps to it.

A host queues the first steps of a device in no time, whatever the device takes for them. So the
steps between at most double: by then the host has had to wait for it.
"""

import time

from paceline.record.phases import PhaseClock
from paceline.record.schema import NETWORK
from paceline.world import World

_EVERY_SECONDS = 0.5
_MOST_STEPS = 100


class Agreement:
    def __init__(self, world: World, clock: PhaseClock) -> None:
        self._world, self._clock = world, clock
        self._num_steps = 0
        self._steps_between = 1
        self._asked_at = time.perf_counter()

    def after_step(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """What at least one process wants, in all of them; nothing while it is not asked."""
        if self._world.size == 1:
            return stop, save
        self._num_steps += 1
        if self._num_steps < self._steps_between:
            return False, False
        step_seconds = (time.perf_counter() - self._asked_at) / self._num_steps
        with self._clock.phase(NETWORK):
            wants = [int(stop), int(save), int(1e6 * step_seconds)]
            is_stop, is_save, slowest = self._world.largest_of(wants)
        self._num_steps, self._asked_at = 0, time.perf_counter()
        self._steps_between = min(steps_between(slowest / 1e6), 2 * self._steps_between)
        return bool(is_stop), bool(is_save)


def steps_between(step_seconds: float) -> int:
    """How many steps of the slowest process are done until all are asked again."""
    return max(1, min(_MOST_STEPS, int(_EVERY_SECONDS / max(step_seconds, 1e-6))))
