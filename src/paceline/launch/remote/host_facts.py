"""What a supervisor finds out about its own host; plain functions, no torch."""

import json
import os
import time
from pathlib import Path
from typing import Any

import psutil

from paceline import config
from paceline.doctor.probe import own_data_path
from paceline.record.checkpoints import all_checkpoints, step_of

_FULL_BYTES = 1_000_000


def end_earlier(name: str, run: Path) -> None:
    """Supervisors that stand for the same host and run, but whose line to the launcher was cut:
    what they started must not go on beside us, and ends with them."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()[1:5]
            is_earlier = words == ["-m", "paceline.launch.remote.supervisor", name, str(run)]
            if is_earlier and process.pid != os.getpid():
                process.kill()
                process.wait(5)
        except psutil.Error:
            continue


def newest_step(run: Path) -> int | None:
    return max((step_of(path) for path in all_checkpoints(run / "checkpoints")), default=None)


def tokens_in(run: Path, prefix: str) -> list[str]:
    """Names of the hosts (and of the launcher) whose mark is visible in this run directory."""
    try:
        return sorted(path.name.removeprefix(prefix) for path in run.glob(f"{prefix}*"))
    except OSError:
        return []


def read_pulses(folder: Path) -> list[tuple[dict[str, Any], float]]:
    """What each worker here last told, and how many seconds ago."""
    found = []
    for path in sorted(folder.glob("rank-*.json")):
        try:
            age_seconds = time.time() - path.stat().st_mtime
            found.append((json.loads(path.read_text(encoding="utf-8")), round(age_seconds, 3)))
        except (OSError, ValueError):
            continue
    return found


def num_out_of_memory_kills() -> int:
    """How often the kernel has killed for lack of memory, in this machine or container."""
    places = [
        (Path("/proc/vmstat"), "oom_kill"),
        (Path("/sys/fs/cgroup/memory.events"), "oom_kill"),
    ]
    return sum(_count_in(path, name) for path, name in places)


def full_disks() -> list[str]:
    """Where file systems are mounted that have next to nothing left."""
    found = []
    for part in psutil.disk_partitions(all=True):
        try:
            space = psutil.disk_usage(part.mountpoint)
        except OSError:
            continue
        if (
            space.total > _FULL_BYTES
            and space.free < _FULL_BYTES
            and "ro" not in part.opts.split(",")
        ):
            found.append(part.mountpoint)
    return found


def _count_in(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return 0
    return sum(int(words[1]) for line in lines if (words := line.split())[0] == name)


def with_data_of_project(recipe: str, project: dict[str, Any] | None) -> str:
    """Data that lies in the user's project lies in the copy of it here."""
    settings = config.parse_yaml(recipe).settings
    if not project or not settings.get("data"):
        return recipe
    place = str(own_data_path(settings["data"], None, project))
    if not config.is_path(settings["data"]) or place == settings["data"]:
        return recipe
    return config.to_yaml({**settings, "data": place})
