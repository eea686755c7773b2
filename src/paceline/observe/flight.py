"""torch's flight recorders: the collectives that this process has queued, NCCL's and Gloo's.

They are private to torch, so whatever they answer may be something else in another release: then
there is nothing to tell. `TORCH_FR_BUFFER_SIZE`, set by the launcher, keeps a dump small.
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import Any, Optional

_NAMES = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
"""NCCL has a recorder of its own, which a torch for processors lacks; what all other backends (and
no NCCL) write to is in torch from 2.8 on."""
_LEAST_SECONDS = 1.0
"""What is done within this time is not waited for."""


def recording() -> dict[str, Any]:
    """What all recorders hold; empty where there is none."""
    torchs = sys.modules.get("torch._C._distributed_c10d")
    if torchs is None or "torch.distributed" not in sys.modules:
        return {}
    return joined([_dumped(getattr(torchs, name, None)) for name in _NAMES])


def _dumped(dump: Any) -> dict[str, Any]:
    try:
        told = json.loads(dump(True, False))
    except Exception:  # it is not there, or another one than the one that is known
        return {}
    return told if isinstance(told, dict) else {}


def joined(recordings: list[dict[str, Any]]) -> dict[str, Any]:
    """As one: each counts groups and entries by itself, so the states of groups are told apart."""
    with_entries = [told for told in recordings if told.get("entries")]
    if len(with_entries) < 2:
        return with_entries[0] if with_entries else {}
    return {
        **with_entries[0],
        "entries": [entry for told in with_entries for entry in told["entries"]],
        "pg_status": [told.get("pg_status") for told in with_entries],
    }


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
            first = min(waiting, key=lambda entry: int(entry["time_created_ns"]), default=None)
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
