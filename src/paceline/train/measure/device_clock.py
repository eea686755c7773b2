"""Phases on a CUDA device, from events that the device itself stamps as it passes them.

The host only queues work there, so its own clock says when work was queued, not when it was done.
Events are read when a log line is written, and only those the device has passed already: nothing
ever waits for them. Written for CUDA and not measured on it by us.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.record.schema import COMPUTE, INPUT, NETWORK, OPTIMIZER, UNEXPLAINED


def read_numbers(scalars: Sequence[torch.Tensor]) -> list[float]:
    """In one copy. On CUDA the host waits here until the device has got there, so that a hang of
    the device is a hang in this function: `watchdog` knows it by its frame."""
    numbers: list[float] = torch.stack(list(scalars)).tolist()
    return numbers


_ON_DEVICE = (COMPUTE, NETWORK, OPTIMIZER)
_AROUND = (INPUT, UNEXPLAINED)


class DeviceMarks:
    """Four stamps per step: begin, last bucket ready, reduced, updated. Nothing on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._is_on = device.type == "cuda"
        self._current: dict[str, Any] = {}
        self._steps: deque[dict[str, Any]] = deque()

    def mark(self, name: str) -> None:
        """Stamp again what is stamped already: of several buckets the last counts."""
        if self._is_on:
            event = self._current.setdefault(name, _new_event())
            event.record()

    def end_step(self) -> None:
        if self._is_on:
            self.mark("updated")
            self._steps.append(self._current)
            self._current = {}

    def take_seconds(self) -> dict[str, float]:
        """By phase, over the steps that the device has finished since the last time."""
        seconds: dict[str, float] = {}
        while self._steps and self._steps[0]["updated"].query():
            for phase, spent in _seconds_of(self._steps.popleft()).items():
                seconds[phase] = seconds.get(phase, 0.0) + spent
        return seconds


def _new_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds_of(marks: Mapping[str, Any]) -> dict[str, float]:
    ready = marks.get("ready", marks["reduced"])  # one process alone reduces nothing
    return {
        COMPUTE: marks["begin"].elapsed_time(ready) / 1e3,
        NETWORK: ready.elapsed_time(marks["reduced"]) / 1e3,
        OPTIMIZER: marks["reduced"].elapsed_time(marks["updated"]) / 1e3,
    }


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
