"""What a process knows of itself when its first step is done: place, sizes, surroundings."""

import json
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from .order import Order

SECOND_TRAINING = (
    "another training of this script, in a process of its own, is not recorded: give it a run "
    "directory of its own"
)
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""torchrun's first: under srun both are set."""
_SPEED_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "LD_PRELOAD")
_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
_MOST_NODES = 2000
_SCHEMA = 2


@dataclass(frozen=True)
class Place:
    rank: int
    world_size: int


def find_place() -> Place:
    """By the process group if there is one, else by what launchers set."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size())
    for rank, size in _RANKS:
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return Place(int(os.environ[rank]), int(os.environ[size]))
    return Place(0, 1)


def as_rate(rate: Any) -> float | None:
    """Of a learning rate that is a tensor, unless reading it means waiting for a device."""
    if isinstance(rate, int):
        return float(rate)
    if rate is None or getattr(rate, "is_cuda", False):
        return None
    return float(rate)


def describe(observer: Any, optimizer: Any, place: Place) -> dict[str, Any]:
    told: dict[str, Any] = {
        "world_size": place.world_size,
        "host": observer.order.host,
        "machine": _machine(),
        "cores": _cores(),
        "optimizers": list(observer.optimizers.values()),
        **_of_parameters([optimizer, *observer.other_optimizers()]),
    }
    hosts = observer.order.num_hosts or _num_hosts(place)
    if hosts:
        told["num_hosts"] = hosts
    if observer.order.interface:
        told["interface"] = observer.order.interface
    loader = observer.training_loader
    if loader is not None:
        told["loader"] = loader.facts
        told["loader_workers"] = loader.facts.get("workers") or 0
    told["parallel"] = _parallel(observer, optimizer)
    if observer.autocast in _DTYPES:
        told["precision"] = _DTYPES[observer.autocast]
    return {**told, **_of_device(str(told["device"]))}


def _of_parameters(optimizers: list[Any]) -> dict[str, Any]:
    """Of all optimizers that step together, as those of a GAN do."""
    num, gradient_bytes, learned_bytes, device, dtypes = 0, 0, 0, "cpu", set()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    known = {id(parameter): parameter for group in groups for parameter in group["params"]}
    for parameter in known.values():
        num += parameter.numel()
        device = str(parameter.device)
        dtypes.add(str(parameter.dtype))
        num_bytes = parameter.numel() * parameter.element_size()
        learned_bytes += num_bytes if parameter.requires_grad else 0
        gradient_bytes += num_bytes if parameter.grad is not None else 0
    lowered = [_DTYPES[name] for name in sorted(dtypes) if name in _DTYPES]
    return {
        "num_parameters": num,
        "gradient_bytes": gradient_bytes or learned_bytes,  # they may be set to None already
        "device": device,
        "precision": lowered[0] if lowered else "fp32",
    }


def _of_device(device: str) -> dict[str, Any]:
    """What a CUDA device can multiply in, and whether fp32 is rounded to TF32 there."""
    torch = sys.modules["torch"]
    try:
        if not device.startswith("cuda") or torch.version.cuda is None:
            return {}
        major, minor = torch.cuda.get_device_capability(device)
        return {
            "compute_capability": f"{major}.{minor}",
            "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        }
    except Exception:  # a script may have set it in torch's newer way, which the older refuses
        return {}


def first_step(optimizer: Any) -> int:
    """Which step the first was, where the optimizer counts: one that was loaded goes on."""
    for state in optimizer.state.values():
        counted = state.get("step") if isinstance(state, dict) else None
        if isinstance(counted, int):
            return max(counted, 1)
        if counted is not None and type(counted).__name__ == "Tensor" and counted.is_cpu:
            return max(int(counted.item()), 1)
        break
    return 1


def _parallel(observer: Any, optimizer: Any) -> str:
    if observer.networks:
        return "ddp"
    first = optimizer.param_groups[0]["params"][:1]
    return "fsdp" if first and type(first[0]).__name__ == "DTensor" else ""


def _num_hosts(place: Place) -> int | None:
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return -(-place.world_size // int(local)) if local.isdecimal() and int(local) else None


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def _cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return list(range(os.cpu_count() or 1))


def write_script(order: Order) -> None:
    """Where no launcher did: `script.json` makes a directory a run."""
    path = os.path.join(order.run, "script.json")  # noqa: PTH118
    if os.path.exists(path):  # noqa: PTH110
        return
    told = {
        "kind": "observed",
        "script": "notebook" if "ipykernel" in sys.modules else sys.argv[0] or "script",
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),  # noqa: PTH109
        "python": sys.executable,
    }
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(told, file, indent=1)


def write_environment(order: Order, told: dict[str, Any], place: Place) -> None:
    """Beside what the launcher wrote there of the machine."""
    path = os.path.join(order.run, "environment.json")  # noqa: PTH118
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            known = json.load(file)
    except (OSError, ValueError):
        known = {}
    known.update(
        {
            "schema": _SCHEMA,
            "time": time.time(),
            "python": platform.python_version(),
            "libraries": _libraries(),
            "host": order.host or socket.gethostname(),
            "device": told["device"],
            "device_name": _device_name(told["device"]),
            "precision": told["precision"],
            "world_size": place.world_size,
            "threads": sys.modules["torch"].get_num_threads(),
            "settings": {n: os.environ[n] for n in _SPEED_VARIABLES if n in os.environ},
        }
    )
    with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(known, file, indent=1)
    os.replace(f"{path}.part", path)  # noqa: PTH105


def _libraries() -> dict[str, str]:
    names = ("torch", "numpy", "transformers", "accelerate", "lightning", "deepspeed")
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    return {name: str(version) for name, version in found.items() if version}


def _device_name(device: str) -> str:
    torch = sys.modules["torch"]
    try:
        if device.startswith("cuda"):
            return str(torch.cuda.get_device_name(device))
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except Exception:
        return ""
    return platform.processor() or platform.machine()
