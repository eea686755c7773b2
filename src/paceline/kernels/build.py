"""C sources that are compiled on first use, for the processor at hand, and kept in a cache.

Code is loaded from that cache, so it must be the user's own: a directory that others may write to
is refused. Where a library cannot be had, `problem` says why. No operation lives here.
"""

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

from paceline.errors import UserError
from paceline.files import move_into_place, user_cache

SWITCHED_OFF = "PACELINE_KERNEL=off"

_HEADER = "common.h"

# Fast, but NaN stays NaN: a run whose weights are spoilt must be seen to be.
_COMPILE = ("-O3", "-march=native", "-ffast-math", "-fno-finite-math-only", "-fopenmp", "-fPIC")
# Linked in a second command without -ffast-math: with it, gcc before version 13 adds code that
# switches the loading process to flushing denormals, in all of its arithmetic.
_LINK = ("-fopenmp", "-shared")
_BUILD_SECONDS = 120
_LONGEST_COMPLAINT = 200


def library(name: str) -> ctypes.CDLL | None:
    """The compiled source of that name, or None where it cannot be had."""
    found = _load(name)
    return None if isinstance(found, str) else found


def problem(name: str) -> str | None:
    """Why the library of that name cannot be had here; None if it can."""
    found = _load(name)
    return found if isinstance(found, str) else None


def is_to_be_compiled(name: str) -> bool:
    """Whether asking for the library takes seconds, because nobody has asked here before."""
    compiler = _compiler()
    if os.environ.get("PACELINE_KERNEL") == "off" or compiler is None:
        return False
    try:
        return not _place(compiler, name).exists()
    except (OSError, subprocess.SubprocessError):
        return False


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@cache
def _load(name: str) -> ctypes.CDLL | str:
    if os.environ.get("PACELINE_KERNEL") == "off":
        return SWITCHED_OFF
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler (cc or gcc)"
    try:
        return ctypes.CDLL(str(_built(compiler, name)))
    except UserError as error:
        return f"{error.what} (fix: {error.fix})"
    except subprocess.CalledProcessError as error:
        return f"{compiler} cannot compile the kernel '{name}': {_complaint(error.stderr)}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"the kernel '{name}' cannot be built: {error}"


def _complaint(stderr: bytes) -> str:
    """The first line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line] or lines or ["it does not say why"]
    return wrong[0][:_LONGEST_COMPLAINT]


@cache
def _sources(name: str) -> dict[str, bytes]:
    here = resources.files("paceline.kernels")
    return {file: (here / file).read_bytes() for file in (_HEADER, f"{name}.c")}


def _place(compiler: str, name: str) -> Path:
    """Where the library for this source, compiler and processor is kept."""
    made_of = [
        *_sources(name).values(),
        " ".join((*_COMPILE, *_LINK)).encode(),
        _version(compiler),
        _processor(),
    ]
    key = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]
    return user_cache() / "kernels" / f"{name}-{key}.so"


def _built(compiler: str, name: str) -> Path:
    """The library; made once and kept in the cache."""
    built, files = _place(compiler, name), _sources(name)
    folder = built.parent
    make_private(folder)
    if built.exists():
        refuse_if_not_ours(built)
        return built
    # Processes that start together may all build; each renames a whole file into place.
    with tempfile.TemporaryDirectory(dir=folder) as work:
        for file, text in files.items():
            (Path(work) / file).write_bytes(text)
        _run_in(work, [compiler, *_COMPILE, "-c", "-o", "kernel.o", f"{name}.c"])
        _run_in(work, [compiler, *_LINK, "-o", "kernel.so", "kernel.o", "-lm"])
        made = Path(work) / "kernel.so"
        made.chmod(0o700)  # a umask may let a group write
        move_into_place(made, built)
    return built


def _run_in(folder: str, command: list[str]) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_BUILD_SECONDS)


def make_private(folder: Path) -> None:
    """A directory that nobody else can write to, or a refusal: what is in it will be executed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    refuse_if_not_ours(folder)


def refuse_if_not_ours(path: Path) -> None:
    """Not followed if it is a link: then it is whoever made the link who decides what is loaded."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        wrong = "is a link"
    elif found.st_uid != os.getuid():
        wrong = f"belongs to another user (number {found.st_uid})"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "can be written to by other users"
    else:
        return
    raise UserError(
        f"{path} {wrong}, so compiled code is not loaded from it",
        "remove it, or set XDG_CACHE_HOME to a directory of your own",
    )


@cache
def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout


def _processor() -> bytes:
    """A home directory may be shared by machines of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b"unknown"
    return b"".join(sorted({line for line in lines if line.startswith((b"flags", b"Features"))}))
