"""Times on a CUDA device, from events that the device itself stamps as it passes them.

The host only queues work there, so its own clock says when work was queued, not when it was done.
Events and losses of an interval are read when the next one is queued: the device has work for the
time that the host waits. Written for CUDA and not measured on it by us; tests give it a stand-in
with known answers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER, UNEXPLAINED

_ON_DEVICE = (COMPUTE, NETWORK, OPTIMIZER)
_OF_STEPS = (*_ON_DEVICE, INPUT, UNEXPLAINED)

_LEAST_STEPS_AHEAD = 2
_MOST_STEPS_AHEAD = 32
_SECONDS_AHEAD = 1.0
_BYTES_AHEAD = 256 * 2**20

NewEvent = Callable[[], Any]
"""Makes something with torch.cuda.Event's record, synchronize and elapsed_time."""


@dataclass(frozen=True)
class DeviceStep:
    """One step as the device saw it."""

    seconds: float
    """Since it was done with the step before, or since the loop went on after something else."""
    phases: dict[str, float]
    """What it did in that time; the rest it waited for the host."""

    def beside(self, host: Mapping[str, float]) -> dict[str, float]:
        """With the host's phases of the same step: it waited for input as far as the host did."""
        idle = max(self.seconds - sum(self.phases.values()), 0.0)
        waited = min(host.get(INPUT, 0.0), idle)
        return {**self.phases, INPUT: waited, UNEXPLAINED: idle - waited}


class DeviceMarks:
    """Stamps of a step: begin, last bucket ready, reduced, updated, and where weights are exchanged
    after the update, agreed. Nothing on a CPU."""

    def __init__(self, device: torch.device, new_event: NewEvent | None = None) -> None:
        self._new_event = new_event or (_new_event if device.type == "cuda" else None)
        self._current: dict[str, Any] = {}
        self._steps: list[dict[str, Any]] = []
        self._since: Any = None
        """When the step before was done, or what came between."""
        self._running: deque[Any] = deque()
        """When each of the last steps is done; the device may not have got there."""
        self.most_ahead = _MOST_STEPS_AHEAD
        self._num_ahead = _LEAST_STEPS_AHEAD

    def restart(self) -> None:
        """The loop goes on here: what came before belongs to no step."""
        if self._new_event is not None:
            self._since = self._new_event()
            self._since.record()

    def mark(self, name: str) -> None:
        """Stamp again what is stamped already: of several buckets the last counts."""
        if self._new_event is not None:
            if name not in self._current:
                self._current[name] = self._new_event()
            self._current[name].record()

    def end_step(self) -> None:
        if self._new_event is not None:
            if "updated" not in self._current:
                self.mark("updated")
            last = self._current.get("agreed") or self._current["updated"]
            self._current["end"] = last
            self._current.setdefault("since", self._since or self._current["begin"])
            self._steps.append(self._current)
            self._since, self._current = last, {}
            self._running.append(last)

    def limit_lead(self) -> None:
        """Wait until the device is not too many steps behind the host."""
        while len(self._running) > self._num_ahead:
            wait_for_device(self._running.popleft())

    def keep_pace(self, steps: "Sequence[DeviceStep]") -> None:
        """Queue no more than about a second of work, by what these steps took: whoever asks the run
        to stop waits for all that is queued."""
        if steps:
            step_seconds = sum(step.seconds for step in steps) / len(steps)
            within = int(_SECONDS_AHEAD / max(step_seconds, 1e-6))
            self._num_ahead = max(_LEAST_STEPS_AHEAD, min(self.most_ahead, within))

    def take_steps(self) -> "MarkedSteps":
        """All since the last time."""
        taken, self._steps = self._steps, []
        return MarkedSteps(taken)


@dataclass(frozen=True)
class MarkedSteps:
    """Steps whose times may not be known yet."""

    marks: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> list[DeviceStep]:
        """Waits until the device is done with them."""
        if self.marks:
            wait_for_device(self.marks[-1]["end"])
        return [_timed(marks) for marks in self.marks]


def _new_event() -> Any:
    return waited_for_asleep(enable_timing=True)


def waited_for_asleep(enable_timing: bool = False) -> Any:
    """An event for which a host waits without keeping a core busy, as CUDA's own would: on a small
    machine that core decodes the next pictures."""
    return torch.cuda.Event(enable_timing, blocking=True)  # type: ignore[no-untyped-call]


def _timed(marks: Mapping[str, Any]) -> DeviceStep:
    ready = marks.get("ready", marks["reduced"])  # one process alone reduces nothing
    phases = {
        COMPUTE: marks["begin"].elapsed_time(ready) / 1e3,
        NETWORK: ready.elapsed_time(marks["reduced"]) / 1e3,
        OPTIMIZER: marks["reduced"].elapsed_time(marks["updated"]) / 1e3,
    }
    phases[NETWORK] += marks["updated"].elapsed_time(marks["end"]) / 1e3
    return DeviceStep(marks["since"].elapsed_time(marks["end"]) / 1e3, phases)


def total_phases(steps: Sequence[DeviceStep]) -> dict[str, float]:
    return {name: sum(step.phases[name] for step in steps) for name in _ON_DEVICE} if steps else {}


class SettlingClock:
    """The host's phases with the device's word for what the device did, line by line.

    A line is read when the host has queued the steps of the next one, and the device may be
    anywhere in those. So a line gets as much of the time that passed as its steps took by the
    device's stamps; the rest waits for the lines to come, and the last that is read gets all.
    """

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}
        """Of steps that are not written yet."""

    def settle(
        self, host: Mapping[str, float], steps: Sequence[DeviceStep], are_more_to_come: bool = False
    ) -> dict[str, float]:
        """The phases of these steps. While the device works, the host reads ahead; so input counts
        only as far as the device's work leaves room for it."""
        if not steps:
            return dict(host)
        known = {name: host.get(name, 0.0) + self._ahead.get(name, 0.0) for name in _OF_STEPS}
        room, device = sum(known.values()), total_phases(steps)
        span = min(room, sum(step.seconds for step in steps)) if are_more_to_come else room
        scale = min(1.0, span / max(sum(device.values()), 1e-9))
        settled = {name: seconds * scale for name, seconds in device.items()}
        left = span - sum(settled.values())
        settled[INPUT] = min(known[INPUT], left)
        settled[UNEXPLAINED] = left - settled[INPUT]
        waited = min(known[INPUT] - settled[INPUT], room - span)
        self._ahead = {INPUT: waited, COMPUTE: room - span - waited}
        others = {name: seconds for name, seconds in host.items() if name not in _OF_STEPS}
        return {**others, **settled}

    def take_rest(self) -> dict[str, float]:
        """Where the run ends with steps that nobody could read."""
        rest, self._ahead = self._ahead, {}
        return {name: seconds for name, seconds in rest.items() if seconds}


def steps_ahead(step_bytes: int) -> int:
    """How many steps a host may queue ahead of its device, by what a step's batches take there:
    enough that a pause of the host is not one of the device, and little of its memory."""
    return max(_LEAST_STEPS_AHEAD, min(_MOST_STEPS_AHEAD, _BYTES_AHEAD // max(step_bytes, 1)))


class UnreadNumbers:
    """Numbers on the device that are on their way to the host, in one copy."""

    def __init__(self, scalars: Sequence[torch.Tensor]) -> None:
        self._numbers = torch.stack(list(scalars))
        self._copied: Any = None
        if self._numbers.device.type == "cuda":
            there = self._numbers
            self._numbers = torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
            self._numbers.copy_(there, non_blocking=True)
            self._copied = waited_for_asleep()
            self._copied.record(torch.cuda.current_stream(there.device))

    def read(self) -> list[float]:
        if self._copied is not None:
            wait_for_device(self._copied)
        numbers: list[float] = self._numbers.tolist()
        return numbers


def read_numbers(scalars: Sequence[torch.Tensor]) -> list[float]:
    """At once, in one copy."""
    return UnreadNumbers(scalars).read()


def wait_for_device(event: Any) -> None:
    """Until the device has passed it. The loop waits for a device nowhere else, so that a hang of
    the device is a hang in this function: `watchdog` knows it by its frame."""
    event.synchronize()
