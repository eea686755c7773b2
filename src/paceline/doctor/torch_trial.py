"""Tries torch on a host: its import, and a kernel on every device. Prints one JSON line.

The doctor sends it as text and runs it in a process of its own, because either may crash. Like
`probe.py` it stands alone, and it judges nothing.
"""

from __future__ import annotations

import json
import time
from typing import Any


def main() -> None:
    began = time.monotonic()
    import torch  # noqa: PLC0415  (its import is what is timed)

    found = {
        "seconds": time.monotonic() - began,
        "path": torch.__path__[0],
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or torch.version.hip,
        "built_for": torch.cuda.get_arch_list(),
        "devices": [look(torch, number) for number in range(torch.cuda.device_count())],
    }
    if found["cuda"] and not found["devices"]:
        found["cuda_error"] = why_none(torch)
    print(json.dumps(found))  # noqa: T201


def look(torch: Any, number: int) -> dict[str, Any]:
    about = torch.cuda.get_device_properties(number)
    found = {
        "name": about.name,
        "capability": [about.major, about.minor],
        "memory_bytes": about.total_memory,
    }
    try:
        if float(torch.ones(1, device=f"cuda:{number}") + 1) != 2.0:
            found["error"] = "1 + 1 was not 2"
    except Exception as error:
        found["error"] = first_line(error)
    return found


def why_none(torch: Any) -> str | None:
    try:
        torch.cuda.init()
    except Exception as error:
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    main()
