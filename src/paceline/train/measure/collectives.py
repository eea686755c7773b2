"""Which collective a process is in, from torch's flight recorder.

The recorder keeps the newest collectives of every group (NCCL's and Gloo's); it is on unless
TORCH_FR_BUFFER_SIZE=0. It tells what was queued and not yet done, which on CUDA no stack shows:
the host has queued everything long ago and waits in some read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PendingCollective:
    name: str
    """As torch calls it, e.g. 'nccl:all_reduce'."""
    number: int
    """Counted alike by all processes of the group, so the lowest one is who is behind."""


def pending_collective() -> PendingCollective | None:
    """The oldest that this process has queued and that is not done; None where torch cannot say."""
    try:
        from torch._C import _distributed_c10d as recorder  # noqa: PLC0415  (torch without it)

        # Until 2.6 it recorded NCCL alone, under its name.
        names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
        dump = next(getattr(recorder, name) for name in names if hasattr(recorder, name))
        return first_pending(json.loads(dump(True, False)).get("entries", []))
    except Exception:  # private to torch: what it calls things may change with any release
        return None


def first_pending(entries: Sequence[Mapping[str, Any]]) -> PendingCollective | None:
    waiting = [entry for entry in entries if not entry["retired"] and not _is_done(entry)]
    if not waiting:
        return None
    oldest = min(waiting, key=lambda entry: int(entry["record_id"]))
    name = str(oldest["profiling_name"])
    return PendingCollective(name, int(oldest["collective_seq_id"]))


def _is_done(entry: Mapping[str, Any]) -> bool:
    """Gloo leaves the state as it was and only retires an entry; NCCL retires it a little late."""
    return bool(entry["state"] == "completed")
