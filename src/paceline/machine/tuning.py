"""Environment variables that make workers fast, or exact. They act before a process starts, so only
its launcher can set them; whatever the user has set stays."""

import os
import sys

from paceline.machine.cores import num_cores
from paceline.machine.load import cores_are_busy

_ALLOCATOR = {
    # glibc returns every large block to the kernel and faults it in again, zeroed, at each step:
    # up to 25,000 page faults a step for a CIFAR ResNet. What keeping the memory gains depends on
    # what a fault costs: measured 1.03 to 1.66 times as fast, the most with huge pages.
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

# OpenMP's threads spin for milliseconds before they sleep. Where another program wants the core,
# the thread that is waited for does not get it: a small ResNet on two busy cores trained at a tenth
# of its speed (`python -m benchmarks.waiting`). On busy cores a short spin bridges most gaps
# between the operations of a step; with the cores to itself a process gains from a longer one,
# still so short that it does little harm when others come later. Results do not depend on it.
SPIN_ON_BUSY_CORES = "1000"
SPIN_ON_IDLE_CORES = "10000"


def speed_environment(num_procs: int, interface: str = "lo") -> dict[str, str]:
    num_threads = max(1, num_cores() // num_procs)
    settings = {"OMP_NUM_THREADS": str(num_threads)}
    if sys.platform == "linux":
        settings |= _ALLOCATOR
        settings["GOMP_SPINCOUNT"] = _spin(num_threads)
        settings["GLOO_SOCKET_IFNAME"] = interface  # processes of one host need no network card
        if interface != "lo":
            settings["NCCL_SOCKET_IFNAME"] = interface
    settings["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    settings["TORCH_FR_BUFFER_SIZE"] = "2000"  # torch 2.10 has its flight recorder off by default
    return {name: os.environ.get(name, value) for name, value in settings.items()}


def _spin(num_threads: int) -> str:
    """One thread waits for no other, so nobody needs to look."""
    is_idle = num_threads > 1 and not cores_are_busy()
    return SPIN_ON_IDLE_CORES if is_idle else SPIN_ON_BUSY_CORES


def exact_environment(deterministic: bool) -> dict[str, str]:
    """What cuBLAS reads once, when it is loaded: buffers of its own for every stream, because
    shared ones are handed out in the order of the moment, and sums with them."""
    name = "CUBLAS_WORKSPACE_CONFIG"
    return {name: os.environ.get(name, ":4096:8")} if deterministic else {}
