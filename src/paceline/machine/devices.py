"""The devices of this host that workers can have, how many workers that makes, and which device is
whose; asked without torch."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.machine import amd


@dataclass(frozen=True)
class Processes:
    """How many processes a host starts, and why."""

    count: int
    why: str


def choose_processes(
    asked: int | None,
    device: str,
    num_devices: int,
    num_micro_batches: Callable[[int], int],
) -> Processes:
    """`num_micro_batches` tells how many a step has when so many processes train."""
    if device == "cpu" or (num_devices == 0 and device == "auto"):
        return Processes(asked or 1, "as asked for" if asked else "on the processor")
    if num_devices == 0:
        raise UserError(
            f"device={device}, but there is no CUDA device that this process may use",
            "see `nvidia-smi` and CUDA_VISIBLE_DEVICES, or train on the processor: device=cpu",
        )
    if asked:
        refuse_more_than_devices(asked, num_devices, f"--procs {num_devices}")
        return Processes(asked, "as asked for")
    count = max(n for n in range(1, num_devices + 1) if n == 1 or num_micro_batches(n) >= n)
    if count == num_devices:
        return Processes(count, "one per CUDA device")
    return Processes(
        count,
        f"of {num_devices} CUDA devices, because a step has only {num_micro_batches(count)} "
        "micro-batches: a smaller batch.micro or a larger batch.global uses more",
    )


def refuse_more_than_devices(asked: int, num_devices: int, fewer: str) -> None:
    """`fewer`: what to type for as many as there are devices."""
    if asked > num_devices:
        there = "is 1 CUDA device" if num_devices == 1 else f"are {num_devices} CUDA devices"
        raise UserError(
            f"{asked} processes were asked for, and there {there} that they may use",
            f"{fewer}, or train on the processor: device=cpu",
        )


def num_visible_devices(variables: Mapping[str, str] = os.environ) -> int:
    """CUDA devices that a process of this user may use: what the driver lists, as far as
    CUDA_VISIBLE_DEVICES names it. Of a card that is split (MIG) a process gets one part only.
    AMD's cards are CUDA devices too, to a torch that is built for them."""
    listed = _listed_devices()
    if not listed and torch_is_for_amd():
        return amd.num_visible_devices(variables)
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len(_named_devices(visible, listed))
    return 1 if any(uuid.startswith("MIG-") for uuid in listed) else len(listed)


def torch_is_for_amd() -> bool:
    """Read from its files: an import would take seconds, and this is asked by every launcher."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^hip\b[^=\n]*= *['\"]", text, re.MULTILINE) is not None


def _listed_devices() -> list[str]:
    """Their UUIDs by number, with the parts of a split card after it."""
    return _ask_driver_once(os.environ.get("PATH", ""))


@cache
def _ask_driver_once(_path: str) -> list[str]:
    """A driver that has to wake its devices takes seconds to answer."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)", listed.stdout)


def driver_version() -> str | None:
    """Of NVIDIA's driver, where there is one."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.stdout.split()), None)


def listed_cards() -> list[dict[str, Any]]:
    """Name, memory and compute capability of the cards here, as the doctor has them from torch."""
    ask = "--query-gpu=name,memory.total,compute_cap"
    try:
        told = subprocess.run(
            ["nvidia-smi", ask, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    lines = re.findall(r"^(.+), (\d+), (\d+)\.(\d+)$", told.stdout, re.MULTILINE)
    return [
        {"name": name, "memory_bytes": int(mib) * 2**20, "capability": [int(major), int(minor)]}
        for name, mib, major, minor in lines
    ]


def _named_devices(visible: str, listed: list[str]) -> list[str]:
    """As CUDA reads it: up to the first entry that names nothing; a UUID may be cut short."""
    cards = [uuid for uuid in listed if uuid.startswith("GPU-")]
    found: list[str] = []
    for word in (word.strip() for word in visible.split(",")):
        if word.isdigit():
            matching = cards[int(word) : int(word) + 1]
        else:
            matching = [uuid for uuid in listed if word and uuid.startswith(word)]
        if len(matching) != 1 or matching[0] in found:
            break
        found += matching
    return found[:1] if found and found[0].startswith("MIG-") else found


def choose_index(local_rank: int, num_visible: int, variables: Mapping[str, str]) -> int:
    """Which of the CUDA devices that a process sees is its own.

    Mostly all processes of a host see all devices and count off. A scheduler may also show each
    process its own alone (`srun --gpus-per-task=1`), and that one has number 0 in all of them.
    """
    if local_rank < num_visible:
        return local_rank
    if num_visible and _sees_own_devices_alone(variables):
        return 0
    raise UserError(
        f"process {local_rank} of this host has no CUDA device: there are {num_visible}",
        "start at most one process per device (--procs)",
    )


def _sees_own_devices_alone(variables: Mapping[str, str]) -> bool:
    """What Slurm sets for each task, and what wrapper scripts of mpirun do by hand. The latter may
    be one device for all processes by mistake: see `refuse_shared_device`."""
    per_task = variables.get("SLURM_GPUS_PER_TASK") or "gpu" in variables.get(
        "SLURM_TRES_PER_TASK", ""
    )
    visible = variables.get("CUDA_VISIBLE_DEVICES", "")
    return bool(per_task) or (visible != "" and "," not in visible)


def refuse_shared_device(owners: Sequence[str]) -> None:
    """`owners` has each process's device, by rank, under a name that no other device has."""
    ranks: dict[str, list[int]] = {}
    for rank, device in enumerate(owners):
        ranks.setdefault(device, []).append(rank)
    for device, sharing in ranks.items():
        if len(sharing) > 1:
            raise UserError(
                f"processes {', '.join(map(str, sharing))} would share one CUDA device, {device}",
                "start at most one process per device (--procs), or let CUDA_VISIBLE_DEVICES "
                "name another one for each",
            )
