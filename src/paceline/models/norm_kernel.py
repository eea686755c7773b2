"""Batch norm, addition and ReLU as one operation on a CPU: C, compiled on first use.

On 32-pixel pictures these three take half of a ResNet's step, nearly all of it memory traffic.
Where there is no C compiler, or PACELINE_KERNEL=off, `load` says so and torch's own operations are
used: the same mathematics, slower. No model lives here.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable

LONGEST_ROW = 2048
"""The C source's LONGEST: more channels than this are left to torch."""

_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC")


_is_off = False


def turn_off() -> None:
    """Use torch's own operations from now on, as other processes of the run have to."""
    global _is_off  # noqa: PLW0603
    _is_off = True


@cache
def load() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if os.environ.get("PACELINE_KERNEL") == "off" or compiler is None:
        return None
    source = (resources.files("paceline.models") / "norm_kernel.c").read_bytes()
    try:
        return _declared(ctypes.CDLL(str(_built(compiler, source))))
    except (OSError, subprocess.SubprocessError):
        return None


def _built(compiler: str, source: bytes) -> Path:
    """The library for this source, compiler and processor; made once and kept in the cache."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    key = hashlib.sha256(b"\0".join([source, _version(compiler), _processor()])).hexdigest()[:16]
    library = folder / "kernels" / f"norm-{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        # Processes that start together may all build; each renames a whole file into place.
        with tempfile.TemporaryDirectory(dir=library.parent) as work:
            (Path(work) / "norm.c").write_bytes(source)
            command = [compiler, *_FLAGS, "-o", "norm.so", "norm.c", "-lm"]
            subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=120)
            (Path(work) / "norm.so").replace(library)
    return library


def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout


def _processor() -> bytes:
    """A home directory may be shared by machines of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b"unknown"
    return b"".join(sorted({line for line in lines if line.startswith((b"flags", b"Features"))}))


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_ssize_t
    sizes = [number, number]
    forward, backward = library.norm_relu_forward, library.norm_relu_backward
    forward.argtypes = [*[pointer] * 4, ctypes.c_float, *sizes, *[pointer] * 4]
    backward.argtypes = [*[pointer] * 6, *sizes, *[pointer] * 4]
    forward.restype = backward.restype = None
    return library


def can_take(x: torch.Tensor) -> bool:
    """Whether these activations are of the kind that the kernel is written for."""
    return (
        x.device.type == "cpu"
        and x.dtype is torch.float32
        and x.shape[1] <= LONGEST_ROW
        and x.numel() > 0
        and x.is_contiguous(memory_format=torch.channels_last)
        and not _is_off
        and load() is not None
    )


def norm_relu(
    x: torch.Tensor,
    before: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """relu(norm(x) + before), and the mean and unbiased variance that were used."""
    result = _NormReLU.apply(x, before, weight, bias, eps)  # type: ignore[no-untyped-call]
    return cast("tuple[torch.Tensor, torch.Tensor, torch.Tensor]", result)


def _laid_out(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        before: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        library, channels = load(), x.shape[1]
        assert library is not None  # noqa: S101  (`can_take` was asked)
        out, (mean, var, inv_std) = torch.empty_like(x), torch.empty(3, channels)
        added = _laid_out(before) if before is not None else None
        library.norm_relu_forward(
            x.data_ptr(), added.data_ptr() if added is not None else None,
            weight.data_ptr(), bias.data_ptr(), eps, x.numel() // channels, channels,
            out.data_ptr(), mean.data_ptr(), var.data_ptr(), inv_std.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(x, out, weight, mean, inv_std)
        ctx.has_before = before is not None
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor, *_unused: torch.Tensor) -> tuple[Any, ...]:
        x, out, weight, mean, inv_std = ctx.saved_tensors
        library, channels = load(), x.shape[1]
        assert library is not None  # noqa: S101  (forward has used it)
        g, gx, (gw, gb) = _laid_out(g), torch.empty_like(x), torch.empty(2, channels)
        g_before = torch.empty_like(x) if ctx.has_before else None
        library.norm_relu_backward(
            g.data_ptr(), x.data_ptr(), out.data_ptr(), weight.data_ptr(), mean.data_ptr(),
            inv_std.data_ptr(), x.numel() // channels, channels,
            g_before.data_ptr() if g_before is not None else None,
            gx.data_ptr(), gw.data_ptr(), gb.data_ptr(),
        )  # fmt: skip
        return gx, g_before, gw, gb, None
