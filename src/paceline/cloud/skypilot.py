"""Clusters that SkyPilot remembers on this machine, read from its own file."""

import re
import sqlite3
import time
from collections.abc import Sequence
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


def cluster_behind(tag: str, names: Sequence[str]) -> str | None:
    """Which of these names `sky down` knows the machines by that have this tag: SkyPilot tags them
    with the name in small letters, shortened where it is long, and a number of the user's."""
    for name in names:
        plain = re.sub(r"[._]", "-", name).lower()
        short = re.fullmatch(r"(.+)-[0-9a-z]{2}-[0-9a-f]{8}", tag)
        if re.fullmatch(rf"{re.escape(plain)}-[0-9a-f]{{8}}", tag):
            return name
        if short is not None and plain.startswith(short[1]) and len(plain) > len(short[1]):
            return name
    return None


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
