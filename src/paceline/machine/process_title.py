"""What `ps` shows of a process that was forked, and not started with words of its own."""

import ctypes
import sys
from pathlib import Path

_ARGUMENTS_START = 45  # in /proc/self/stat, counted from the field after the name


def show_as_module(name: str, instead_of: str) -> None:
    """`python -m INSTEAD_OF ...` becomes `python -m NAME ...`. Linux keeps these words in the
    process's own memory. No longer than it was; where that is impossible nothing changes."""
    if sys.platform != "linux" or len(name) > len(instead_of):
        return
    try:
        words = Path("/proc/self/cmdline").read_bytes()
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return
    start = int(fields[_ARGUMENTS_START])
    if start and instead_of.encode() in words:
        changed = words.replace(instead_of.encode(), name.encode(), 1)
        ctypes.memmove(start, changed.ljust(len(words), b"\0"), len(words))
