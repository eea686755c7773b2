"""What the launcher told this process, from one environment variable."""

import json
import os
import socket
import time
from dataclasses import dataclass

VARIABLE = "PACELINE_OBSERVE"
"""Written by `launch/script/environment.py`."""


@dataclass(frozen=True)
class Order:
    run: str
    attempt: int
    launched_at: float
    host: str
    num_hosts: int | None
    interface: str | None
    pulse_directory: str | None


def read_order() -> Order | None:
    """None where nobody asked to observe, or in words that this version does not know."""
    try:
        told = json.loads(os.environ[VARIABLE])
        return Order(
            run=str(told["run"]),
            attempt=int(told["attempt"]) + _num_restarts(),
            launched_at=float(told["launched_at"]),
            host=str(told.get("host") or socket.gethostname()),
            num_hosts=told.get("num_hosts"),
            interface=told.get("interface"),
            pulse_directory=told.get("pulse_directory"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def order_for(run: str) -> Order:
    """Of a process that began to observe itself, as a notebook does: into a run of its own."""
    base = os.path.abspath(run)  # noqa: PTH100
    number, path = 1, base
    while os.path.exists(path):  # noqa: PTH110
        number += 1
        path = f"{base}-{number}"
    return Order(path, 1, time.time(), socket.gethostname(), None, None, None)


def _num_restarts() -> int:
    """By torchrun's agent, which starts all workers again under the same launcher."""
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(text) if text.isdecimal() else 0
