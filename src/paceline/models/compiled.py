"""C that is compiled on first use: for operations that torch's CPU build does slowly.

Where there is no C compiler, or PACELINE_KERNEL=off, `library` says so and torch's own operations
are used: the same mathematics, slower. No operation lives here.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path

import torch

from paceline.errors import UserError
from paceline.files import move_into_place, user_cache

HEADER = "kernel_common.h"

LONGEST_ROW = 2048
"""The C sources' LONGEST: more channels than this are left to torch."""

# Fast, but NaN stays NaN: a run whose weights are spoilt must be seen to be.
_FLAGS = (
    "-O3",
    "-march=native",
    "-ffast-math",
    "-fno-finite-math-only",
    "-fopenmp",
    "-shared",
    "-fPIC",
)


_is_off = False


def turn_off() -> None:
    """Use torch's own operations from now on, as other processes of the run have to."""
    global _is_off  # noqa: PLW0603
    _is_off = True


@contextmanager
def turned_off() -> Iterator[None]:
    """Torch's own operations for a while: for whoever wants to see them."""
    global _is_off  # noqa: PLW0603
    before, _is_off = _is_off, True
    try:
        yield
    finally:
        _is_off = before


def is_off() -> bool:
    return _is_off


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The compiled source of that name, or None where it cannot be had."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if os.environ.get("PACELINE_KERNEL") == "off" or compiler is None:
        return None
    here = resources.files("paceline.models")
    files = {file: (here / file).read_bytes() for file in (HEADER, f"{name}.c")}
    try:
        return ctypes.CDLL(str(_built(compiler, name, files)))
    except (OSError, UserError, subprocess.SubprocessError):
        return None


def is_usual(x: torch.Tensor) -> bool:
    """Whether these activations are of the kind that the kernels are written for."""
    return (
        x.device.type == "cpu"
        and x.dtype is torch.float32
        and x.shape[1] <= LONGEST_ROW
        and x.numel() > 0
        and x.is_contiguous(memory_format=torch.channels_last)
        and not _is_off
    )


def laid_out(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _built(compiler: str, name: str, files: dict[str, bytes]) -> Path:
    """The library for this source, compiler and processor; made once and kept in the cache."""
    folder = user_cache()
    made_of = [*files.values(), " ".join(_FLAGS).encode(), _version(compiler), _processor()]
    key = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]
    built = folder / "kernels" / f"{name}-{key}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        # Processes that start together may all build; each renames a whole file into place.
        with tempfile.TemporaryDirectory(dir=built.parent) as work:
            for file, text in files.items():
                (Path(work) / file).write_bytes(text)
            command = [compiler, *_FLAGS, "-o", "kernel.so", f"{name}.c", "-lm"]
            subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=120)
            move_into_place(Path(work) / "kernel.so", built)
    return built


def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout


def _processor() -> bytes:
    """A home directory may be shared by machines of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b"unknown"
    return b"".join(sorted({line for line in lines if line.startswith((b"flags", b"Features"))}))
