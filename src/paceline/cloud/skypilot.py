"""Clusters that SkyPilot remembers on this machine, read from its own file."""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from paceline.units import format_seconds

STATE = Path("~/.sky/state.db")


@dataclass(frozen=True)
class Cluster:
    name: str
    status: str
    since_seconds: float
    idle_minutes: int
    """After which it ends itself; below 0 it never does."""
    is_deleted_then: bool = True
    """Otherwise it only stops, and its disks go on to cost."""

    def in_words(self) -> str:
        verb = "ends" if self.is_deleted_then else "stops, keeping disks that cost,"
        ends = f"{verb} {self.idle_minutes} idle minutes after its last job"
        own_end = ends if self.idle_minutes >= 0 else "does not end by itself"
        age = format_seconds(self.since_seconds)
        return f"SkyPilot: {self.name}  {self.status}, launched {age} ago, {own_end}"


def find_clusters(state: Path = STATE) -> list[Cluster]:
    """None where SkyPilot was never used here, or its newer versions keep it elsewhere."""
    path = state.expanduser()
    if not path.is_file():
        return []
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)
    except sqlite3.Error:
        return []
    try:
        rows = database.execute("SELECT name, status, launched_at, autostop, to_down FROM clusters")
        now = time.time()
        return [
            Cluster(
                str(name),
                str(status),
                max(0.0, now - (launched or now)),
                -1 if idle is None else int(idle),
                bool(deletes),
            )
            for name, status, launched, idle, deletes in rows
        ]
    except sqlite3.Error:
        return []
    finally:
        database.close()
