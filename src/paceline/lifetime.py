"""No process is left behind: a child dies with the process that started it, however that died."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel for SIGKILL at the parent's death; where it cannot, look every half second.
    A forked process knows its parent, even if that one is gone already."""
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died while we were asking
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def process_started() -> float:
    """When this process began, in seconds since 1970.

    psutil adds the boot time, which the kernel tells in whole seconds; the age is exact to 10 ms.
    """
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        started_after_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - started_after_boot
    except (OSError, AttributeError, ValueError, IndexError):  # only Linux has all of these
        return psutil.Process().create_time()
    return time.time() - age_seconds


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
