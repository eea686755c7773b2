"""Which collective a process is in, from torch's flight recorders (`observe/flight.py`).

They keep the newest collectives of every group, unless TORCH_FR_BUFFER_SIZE=0, and tell what was
queued and is not done, which on CUDA no stack shows: the host has queued everything long ago and
waits in some read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.observe.flight import recording


@dataclass(frozen=True)
class PendingCollective:
    name: str
    """As torch calls it, e.g. 'nccl:all_reduce'."""
    number: int
    """Counted alike by all processes of the group, so the lowest one is who is behind."""


def pending_collective() -> PendingCollective | None:
    """The oldest that this process has queued and that is not done; None where torch cannot say."""
    try:
        return first_pending(recording().get("entries", []))
    except (KeyError, TypeError, ValueError):  # private to torch: another release, other names
        return None


def first_pending(entries: Sequence[Mapping[str, Any]]) -> PendingCollective | None:
    waiting = [entry for entry in entries if not entry["retired"] and not _is_done(entry)]
    if not waiting:
        return None
    oldest = min(waiting, key=lambda entry: int(entry["time_created_ns"]))
    name = str(oldest["profiling_name"])
    return PendingCollective(name, int(oldest["collective_seq_id"]))


def _is_done(entry: Mapping[str, Any]) -> bool:
    """Gloo leaves the state as it was and only retires an entry; NCCL retires it a little late."""
    return bool(entry["state"] == "completed")
