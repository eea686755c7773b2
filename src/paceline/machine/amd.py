"""AMD's GPUs, as Linux lists them, and which of them a process may use. No torch, no tool of AMD's.

The kernel's driver for computing (KFD) lists processors and GPUs as nodes; only GPUs have SIMD
units. ROCR_VISIBLE_DEVICES picks from these, and HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES,
which HIP reads as well) from what is left.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_NODES: Final = Path("/sys/class/kfd/kfd/topology/nodes")


def num_visible_devices(variables: Mapping[str, str], nodes: Path = _NODES) -> int:
    listed = _listed_devices(nodes)
    left = _picked(listed, variables.get("ROCR_VISIBLE_DEVICES"))
    named = variables.get("HIP_VISIBLE_DEVICES", variables.get("CUDA_VISIBLE_DEVICES"))
    return len(_picked(left, named))


def _listed_devices(nodes: Path) -> list[str]:
    """Their unique numbers in hexadecimal, as ROCR_VISIBLE_DEVICES names them after 'GPU-'."""
    found = []
    folders = [folder for folder in nodes.glob("*") if folder.name.isdigit()]
    for folder in sorted(folders, key=lambda each: int(each.name)):
        try:
            text = (folder / "properties").read_text(encoding="ascii", errors="replace")
        except OSError:  # a node that this user may not see
            continue
        facts = dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE))
        if int(facts.get("simd_count", "0")):
            found.append(f"GPU-{int(facts.get('unique_id', '0')):x}")
    return found


def _picked(listed: list[str], named: str | None) -> list[str]:
    """Up to the first entry that names nothing, as the runtime reads it."""
    if named is None:
        return listed
    found: list[str] = []
    for word in (word.strip() for word in named.split(",")):
        number = int(word) if word.isdigit() else -1
        if word.isdigit() and number < len(listed):
            found.append(listed[number])
        elif word.lower() in listed or word in listed:
            found.append(word)
        else:
            break
    return found
