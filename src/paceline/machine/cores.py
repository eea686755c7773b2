"""How many cores and how much memory this process may use for reading ahead.

A container or a job often has less than its machine, and several processes of a run share a host;
whoever looks only at the machine starts too many threads.
"""

import os
from pathlib import Path
from typing import Final

import psutil

_CGROUP: Final = Path("/sys/fs/cgroup")


def cores_of_host() -> int:
    """Cores that the processes of this run may use here: affinity, and the quota of a container."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells
        allowed = os.cpu_count() or 1
    return max(1, min(allowed, _quota_cores(_CGROUP) or allowed))


def processes_of_host() -> int:
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def cores_of_process() -> int:
    """At least one: a thread that waits for a core still reads ahead while the loop waits."""
    return max(1, cores_of_host() // processes_of_host())


def memory_of_process() -> int:
    """Bytes that are free for one process of this run."""
    free = psutil.virtual_memory().available
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(limit - used, 0))
    return int(free) // processes_of_host()


def _quota_cores(cgroup: Path) -> int | None:
    """What `docker run --cpus` sets: microseconds of processor time per period."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None  # "max", or no such file: no quota


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
