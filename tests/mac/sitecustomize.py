"""Python as it is on a Mac, as far as that can be had on Linux: for PYTHONPATH of test processes.

What only Linux has is taken away, from functions of `os` to files of /proc, and whoever asks for
the platform is told another. Libraries that were built for Linux still have to load, so those that
choose their parts by the platform are imported first, and may go on reading /proc.
"""

import builtins
import collections
import ctypes
import io
import multiprocessing.util  # noqa: F401  (chooses by platform)
import os
import subprocess  # noqa: F401
import sys
import sysconfig
import time
import urllib.request  # noqa: F401
import uuid  # noqa: F401
from collections.abc import Callable
from types import FrameType
from typing import Any

import psutil

_LINUX_ONLY = tuple(
    [
        "sched_",
        "posix_fadvise",
        "POSIX_FADV_",
        "posix_fallocate",
        "memfd_",
        "MFD_",
        "eventfd",
        "EFD_",
        "pidfd_",
        "P_PIDFD",
        "splice",
        "copy_file_range",
        "getrandom",
        "setns",
        "unshare",
        "getresuid",
        "setresuid",
    ]
)
_FILES = ("/proc", "/sys", "/dev/shm")  # noqa: S108
_MAY_READ = ("psutil", "torch", "numpy", "ctypes", "multiprocessing")


def _take_away_functions() -> None:
    for module, names in ((os, _LINUX_ONLY), (time, ("CLOCK_BOOTTIME", "CLOCK_TAI"))):
        for name in dir(module):
            if name.startswith(names):
                delattr(module, name)


def _is_library(frame: FrameType) -> bool:
    """Directly, or by way of a function of the standard library such as `os.path.exists`."""
    callers = [frame, frame.f_back] if frame.f_back else [frame]
    return any(str(f.f_globals.get("__name__")).startswith(_MAY_READ) for f in callers)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without the files that Linux alone has, unless a library asks."""

    def call(path: Any, *arguments: Any, **named: Any) -> Any:
        text = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else ""
        text = os.fsdecode(text)
        if text.startswith(_FILES) and not _is_library(sys._getframe(1)):
            raise FileNotFoundError(2, "No such file or directory", text)
        return function(path, *arguments, **named)

    return call


def _take_away_files() -> None:
    builtins.open = io.open = _guarded(io.open)
    for name in ("open", "listdir", "scandir", "stat"):
        setattr(os, name, _guarded(getattr(os, name)))


def _take_away_from_c_library() -> None:
    class Library(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            if not self._name and name in ("prctl", "syncfs", "sched_getaffinity"):
                raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
            return super().__getattr__(name)

    ctypes.CDLL = Library  # type: ignore[misc]


def _let_psutil_tell_what_a_mac_does() -> None:
    times = collections.namedtuple("times", ["user", "nice", "system", "idle"])
    linux_times = psutil.cpu_times

    def of_mac(found: Any) -> Any:
        return times(*(getattr(found, name) for name in times._fields))

    def cpu_times(percpu: bool = False) -> Any:
        return (
            [of_mac(each) for each in linux_times(percpu=True)] if percpu else of_mac(linux_times())
        )

    setattr(psutil, "cpu_times", cpu_times)  # noqa: B010
    for name in ("net_if_addrs", "net_if_stats", "net_io_counters"):
        setattr(psutil, name, _with_loopback_of_a_mac(getattr(psutil, name)))
    for name in ("cpu_affinity", "io_counters", "ionice", "rlimit", "cpu_num"):
        delattr(psutil.Process, name)


def _with_loopback_of_a_mac(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return {"lo0" if k == "lo" else k: v for k, v in function(*arguments, **named).items()}

    return call


sysconfig.get_config_vars()
_take_away_functions()
_take_away_from_c_library()
_let_psutil_tell_what_a_mac_does()
_take_away_files()
sys.platform = "darwin"
