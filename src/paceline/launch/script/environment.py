"""What a process must find in its environment to be observed, on whatever host it starts."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import paceline

VARIABLE = "PACELINE_OBSERVE"
"""Read by `paceline/observe/order.py`, which imports nothing from here."""


@dataclass(frozen=True)
class ObserveOrder:
    """What the observer in the script's process is told."""

    run: str
    """Absolute, on the host of the process; events go to its `events`."""
    attempt: int
    """Restarts of torchrun's agent are added to it by the process itself."""
    launched_at: float
    """When the launcher began, in seconds since 1970 by that host's clock."""
    host: str | None = None
    """Its name in the hosts file; None is its host name."""
    num_hosts: int | None = None
    interface: str | None = None
    """Over which its world talks, where the launcher knows."""
    pulse_directory: str | None = None
    """Where to write heartbeats; None where nobody reads them."""


def observing_environment(
    order: ObserveOrder,
    variables: Mapping[str, str] = os.environ,
    observer: Path | None = None,
) -> dict[str, str]:
    """The variables to add to a process's own. `variables` are what it has already, because the
    observer goes before what is on PYTHONPATH; `observer` is where `paceline/observe` lies on that
    host, if not where it lies here."""
    site = str((observer or observer_directory()) / "site")
    before = variables.get("PYTHONPATH")
    path = os.pathsep.join([site, before]) if before else site
    return {VARIABLE: json.dumps(asdict(order)), "PYTHONPATH": path}


def observer_directory() -> Path:
    """The files that a host without Paceline needs: this directory alone, wherever it is put."""
    return Path(paceline.__file__).resolve().parent / "observe"
