"""The page that a user pastes into a bug report: what is here, and how every check went.

It names no host, no user and no path: these are nobody's business.
"""

import getpass
import json
import platform
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

import paceline
from paceline.machine.cores import num_cores
from paceline.machine.devices import driver_version
from paceline.selftest.bench import Bench
from paceline.selftest.checks import FAILED, NOT_RUN, OK, Result
from paceline.terminal import printable
from paceline.units import count_of, format_bytes, format_seconds

_PATH = re.compile(r"(?<![\w/.])(?:/[^/\s:'\",;()]+){2,}")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]+")


def describe_machine(bench: Bench) -> dict[str, str]:
    """Versions and devices, in the order in which a reader asks for them."""
    memory = psutil.virtual_memory().total
    cuda = torch.version.cuda or getattr(torch.version, "hip", None)
    return {
        "Paceline": paceline.__version__,
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": f"{torch.__version__}, CUDA or ROCm: {cuda or 'none'}",
        "numpy": metadata.version("numpy"),
        "driver": driver_version() or "none",
        "built for": ", ".join(torch.cuda.get_arch_list()) or "processors",
        "libraries": _device_libraries(),
        "processor": f"{count_of(num_cores(), 'core')}, {format_bytes(memory)} of memory",
        "devices": "; ".join(_devices(bench)) or "none that torch can use",
        "checked on": bench.device.type,
    }


def _device_libraries() -> str:
    if not torch.cuda.is_available():
        return "none"
    cudnn: Any = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    told: Any = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    nccl = ".".join(map(str, told))
    return f"cuDNN {cudnn}, NCCL {nccl}"


def _devices(bench: Bench) -> list[str]:
    if bench.device.type != "cuda":
        return [bench.device.type] * bench.num_devices
    found = []
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        size = format_bytes(about.total_memory)
        found.append(f"{about.name}, compute capability {about.major}.{about.minor}, {size}")
    return found


def hidden_words(scratch: Path) -> dict[str, str]:
    """What must not be on the page, and what stands for it; longer ones first."""
    words = {
        str(scratch): "SCRATCH",
        str(Path(sys.prefix)): "PYTHON",
        str(Path.cwd()): "HERE",
        str(Path.home()): "HOME",
        socket.gethostname(): "HOST",
        getpass.getuser(): "USER",
    }
    return dict(sorted(words.items(), key=lambda pair: -len(pair[0])))


def without_private(text: str, hidden: Mapping[str, str]) -> str:
    for word, instead in hidden.items():
        if len(word) > 1:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", instead, text)
    text = _PATH.sub(lambda match: f".../{Path(match[0]).name}", text)
    return _UUID.sub("DEVICE", _ADDRESS.sub("ADDRESS", text))


def render_text(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    lines = ["Paceline selftest", ""]
    lines += [f"{name:<12} {value}" for name, value in machine.items()]
    lines += ["", *map(_line, results), "", verdict(results)]
    return printable("\n".join(lines))


def _line(result: Result) -> str:
    first, *more = result.text.splitlines() or [""]
    took = format_seconds(result.seconds) if result.outcome != NOT_RUN else "-"
    lines = [f"{result.outcome:<8} {took:>7}  {result.name}: {first}"]
    return "\n".join([*lines, *(f"{'':>18}{line}" for line in more)])


def verdict(results: Sequence[Result]) -> str:
    counts = {kind: sum(r.outcome == kind for r in results) for kind in (OK, FAILED, NOT_RUN)}
    text = f"{counts[OK]} ok, {counts[FAILED]} failed, {counts[NOT_RUN]} not run"
    if counts[FAILED]:
        return f"{text}. Please send this whole page with your report."
    if counts[NOT_RUN]:
        return f"{text}: what was not run needs devices that are not here."
    return text


def render_json(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    document: dict[str, Any] = {
        "machine": dict(machine),
        "checks": [asdict(result) for result in results],
        "is_healthy": all(result.outcome != FAILED for result in results),
    }
    return json.dumps(document, indent=1)
