"""Times on a CUDA device, from events that the device itself stamps as it passes them.

The host only queues work there, so its own clock says when work was queued, not when it was done.
Events are read when a log line is written, right after the losses of the same steps: by then the
device has passed all but perhaps the last of them. Written for CUDA and not measured on it by us;
tests give it a stand-in with known answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER, UNEXPLAINED

_ON_DEVICE = (COMPUTE, NETWORK, OPTIMIZER)
_AROUND = (INPUT, UNEXPLAINED)

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
    """Four stamps per step: begin, last bucket ready, reduced, updated. Nothing on a CPU."""

    def __init__(self, device: torch.device, new_event: NewEvent | None = None) -> None:
        self._new_event = new_event or (_new_event if device.type == "cuda" else None)
        self._current: dict[str, Any] = {}
        self._steps: list[dict[str, Any]] = []
        self._since: Any = None
        """When the step before was done, or what came between."""

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
            self.mark("updated")
            self._current.setdefault("since", self._since or self._current["begin"])
            self._steps.append(self._current)
            self._since, self._current = self._current["updated"], {}

    def take_steps(self) -> list[DeviceStep]:
        """All since the last time; waits until the device is done with them."""
        taken, self._steps = self._steps, []
        if taken:
            taken[-1]["updated"].synchronize()
        return [_timed(marks) for marks in taken]


def _new_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _timed(marks: Mapping[str, Any]) -> DeviceStep:
    ready = marks.get("ready", marks["reduced"])  # one process alone reduces nothing
    phases = {
        COMPUTE: marks["begin"].elapsed_time(ready) / 1e3,
        NETWORK: ready.elapsed_time(marks["reduced"]) / 1e3,
        OPTIMIZER: marks["reduced"].elapsed_time(marks["updated"]) / 1e3,
    }
    return DeviceStep(marks["since"].elapsed_time(marks["updated"]) / 1e3, phases)


def total_phases(steps: Sequence[DeviceStep]) -> dict[str, float]:
    return {name: sum(step.phases[name] for step in steps) for name in _ON_DEVICE} if steps else {}


def settle(host: dict[str, float], device: Mapping[str, float]) -> dict[str, float]:
    """The host's phases with the device's word for what the device did. The sum stays.

    While the device works, the host reads ahead; so input counts only as far as the device's work
    leaves room for it in the time that passed.
    """
    if not device:
        return host
    room = sum(host.get(name, 0.0) for name in (*_ON_DEVICE, *_AROUND))
    scale = min(1.0, room / max(sum(device.values()), 1e-9))
    settled = {name: seconds * scale for name, seconds in device.items()}
    left = room - sum(settled.values())
    settled[INPUT] = min(host.get(INPUT, 0.0), left)
    settled[UNEXPLAINED] = left - settled[INPUT]
    others = {name: s for name, s in host.items() if name not in (*_ON_DEVICE, *_AROUND)}
    return {**others, **settled}


def read_numbers(scalars: Sequence[torch.Tensor]) -> list[float]:
    """In one copy. On CUDA the host waits here until the device has got there, so that a hang of
    the device is a hang in this function: `watchdog` knows it by its frame."""
    numbers: list[float] = torch.stack(list(scalars)).tolist()
    return numbers
