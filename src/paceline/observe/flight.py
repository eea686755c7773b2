"""torch's flight recorder: the collectives that this process has queued, NCCL's and Gloo's.

It is private to torch, so whatever it answers may be something else in another release: then there
is nothing to tell. `TORCH_FR_BUFFER_SIZE`, set by the launcher, keeps a dump small.
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import Any, Optional

_NAMES = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Until torch 2.6 it recorded NCCL alone, under its name."""
_LEAST_SECONDS = 1.0
"""What is done within this time is not waited for."""


def recording() -> dict[str, Any]:
    """What the recorder holds; empty where there is none."""
    recorder = sys.modules.get("torch._C._distributed_c10d")
    if recorder is None or "torch.distributed" not in sys.modules:
        return {}
    try:
        dump = next(getattr(recorder, name) for name in _NAMES if hasattr(recorder, name))
        told = json.loads(dump(True, False))
    except Exception:
        return {}
    return told if isinstance(told, dict) else {}


def states_of_groups(told: dict[str, Any]) -> str:
    """Changes whenever a collective is queued or done."""
    return json.dumps(told.get("pg_status"), sort_keys=True)


@dataclass(frozen=True)
class Pending:
    """A collective that was queued and is not done."""

    name: str
    number: int
    """Counted alike by all processes of the group, so who has the lowest one is behind."""
    sizes: str
    group: str

    @classmethod
    def oldest(cls, told: dict[str, Any]) -> Optional["Pending"]:
        try:
            waiting = [entry for entry in told.get("entries", []) if _is_waited_for(entry)]
            first = min(waiting, key=lambda entry: int(entry["record_id"]), default=None)
            return None if first is None else cls._of(first)
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    def _of(cls, entry: dict[str, Any]) -> "Pending":
        number = entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]
        name = str(entry["profiling_name"]).rpartition(":")[2]
        sizes = json.dumps(entry.get("input_sizes"))
        return cls(name, int(number), sizes, str((entry.get("process_group") or ["?"])[0]))


def _is_waited_for(entry: dict[str, Any]) -> bool:
    """Gloo leaves the state as it was and only retires an entry; NCCL retires it a little late."""
    if entry["retired"] or entry["state"] == "completed":
        return False
    return time.time() - float(entry["time_created_ns"]) / 1e9 > _LEAST_SECONDS
