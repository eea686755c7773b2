"""How many cores and how much memory this process may use: the one place that knows.

A container or a job often has less than its machine, and several processes of a run share a host;
whoever looks only at the machine starts too many threads. Control groups nest, and every level
counts: a job's limit may be set on a group above that of its processes.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class ControlGroups:
    """Where Linux tells the limits of this process; elsewhere nothing is there, and no limit."""

    mount: Path = Path("/sys/fs/cgroup")
    membership: Path = Path("/proc/self/cgroup")

    def levels(self, controller: str) -> Iterator[tuple[Path, bool]]:
        """The groups of this process, the innermost first, and whether they are of version 1.

        A container may see the path that its group has outside, or a mount of that group alone:
        what is not there is passed over by whoever reads.
        """
        for line in _lines_of(self.membership) or ["0::/"]:
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                yield from ((group, False) for group in _upwards(self.mount, path))
            elif controller in controllers.split(","):
                for name in dict.fromkeys((controllers, controller)):
                    yield from ((group, True) for group in _upwards(self.mount / name, path))


_HERE: Final = ControlGroups()


def num_machine_cores() -> int:
    """All of the machine's, be they for this process or not."""
    return os.cpu_count() or 1


def core_numbers() -> list[int]:
    """The cores that this process may run on; only Linux tells."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(num_machine_cores()))


def num_cores(groups: ControlGroups = _HERE) -> int:
    """Cores that this process and its children may use: affinity, and the quota of a container."""
    allowed = len(core_numbers())
    return max(1, min(allowed, quota_cores(groups) or allowed))


def processes_of_host() -> int:
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def cores_of_process(groups: ControlGroups = _HERE) -> int:
    """At least one: a thread that waits for a core still reads ahead while the loop waits."""
    return max(1, num_cores(groups) // processes_of_host())


def memory_of_process(groups: ControlGroups = _HERE) -> int:
    """Bytes that are free for one process of this run."""
    import psutil  # noqa: PLC0415  (a device that only translates has none)

    free = int(psutil.virtual_memory().available)
    for group, is_v1 in groups.levels("memory"):
        limit = _number(group / ("memory.limit_in_bytes" if is_v1 else "memory.max"))
        used = _used_memory(group, is_v1)
        if limit is not None and used is not None:
            free = min(free, max(limit - used, 0))
    return free // processes_of_host()


def quota_cores(groups: ControlGroups = _HERE) -> int | None:
    """What `docker run --cpus` and Slurm set, as whole cores; None without a quota."""
    quotas = (
        _quota_of_first_version(group) if is_v1 else _quota(group)
        for group, is_v1 in groups.levels("cpu")
    )
    return min((quota for quota in quotas if quota is not None), default=None)


def _used_memory(group: Path, is_v1: bool) -> int | None:
    """Without files that the kernel keeps only while nobody needs the memory."""
    used = _number(group / ("memory.usage_in_bytes" if is_v1 else "memory.current"))
    name = "total_inactive_file " if is_v1 else "inactive_file "
    kept = [line.removeprefix(name) for line in _lines_of(group / "memory.stat")]
    return used if used is None else used - sum(int(text) for text in kept if text.isdigit())


def _quota(group: Path) -> int | None:
    """Microseconds of processor time, or "max", and the period that they are for."""
    words = " ".join(_lines_of(group / "cpu.max")).split()
    return _whole_cores(words[0], words[1]) if len(words) == 2 else None


def _quota_of_first_version(group: Path) -> int | None:
    quota, period = (
        " ".join(_lines_of(group / name)) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    )
    return _whole_cores(quota, period)


def _whole_cores(quota: str, period: str) -> int | None:
    if not (quota.isdigit() and period.isdigit() and int(period) > 0):
        return None  # "max", -1, or no such file: no quota
    return max(1, int(quota) // int(period))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # seen from a namespace that this process is not in
        parts = []
    for length in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:length])


def _number(path: Path) -> int | None:
    text = "".join(_lines_of(path))
    return int(text) if text.isdigit() else None


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
