"""What surrounds a run (versions, machine, threads), recorded and set where it helps."""

import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

import paceline
from paceline.machine.cores import num_cores, num_machine_cores
from paceline.machine.devices import driver_version, num_visible_devices
from paceline.machine.probe import machine_type
from paceline.machine.torch_builds import why_on_processor
from paceline.order import HostPrice
from paceline.record.schema import SCHEMA, RunDirectory
from paceline.record.writer import write_file
from paceline.settings import Recipe
from paceline.train.measure.user_code import describe_code
from paceline.world import World

SPEED_VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "PACELINE_KERNEL",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "CUBLAS_WORKSPACE_CONFIG",
)
_LIBRARIES = ("torch", "numpy", "safetensors", "tensorboard")


def write(run: RunDirectory, about: dict[str, Any], hosts: Sequence[HostPrice]) -> None:
    facts = {**about, "hosts": [asdict(host) for host in hosts]}
    write_file(run.environment, json.dumps(facts, indent=1) + "\n")


def describe(recipe: Recipe, world: World) -> dict[str, Any]:
    return {
        "time": time.time(),
        "schema": SCHEMA,
        "paceline": paceline.__version__,
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "num_cores": num_cores(),
        "num_machine_cores": num_machine_cores(),
        "machine_type": machine_type(),
        "memory_bytes": psutil.virtual_memory().total,
        "device": str(world.device),
        "device_name": _device_name(world),
        "world_size": world.size,
        "threads": torch.get_num_threads(),
        "settings": {name: os.environ[name] for name in SPEED_VARIABLES if name in os.environ},
        "seed": recipe.seed,
        "git": _git_state(),
        "project": describe_code(recipe.workload),
    }


def _device_name(world: World) -> str:
    if world.device.type == "cuda":
        return torch.cuda.get_device_name(world.device)
    for line in _lines_of(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def unused_devices(recipe: Recipe, world: World) -> str | None:
    """Why a run that may use devices is on the processor, where the driver lists some."""
    if recipe.device != "auto" or world.device.type != "cpu":
        return None
    num_devices = num_visible_devices()
    if not num_devices:
        return None
    driver = driver_version()
    return why_on_processor(num_devices, torch.__version__, torch.version.cuda, driver)


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _git_state() -> dict[str, Any] | None:
    """The commit of the directory the run was started from, where it is one."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "changed_files": len(changed.splitlines())}
