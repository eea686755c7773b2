"""What a host is rented as, and what it does, read from its own counters: processor, memory, disk,
interface, devices.

Read only: nothing here is a thread, writes a file or knows of training. No torch.
"""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from paceline.machine.cores import core_numbers
from paceline.machine.interfaces import link_bits_per_second

_FIRMWARE = Path("/sys/class/dmi/id")
_ASLEEP = ("idle", "iowait", "steal")
_GUESTS = ("guest", "guest_nice")  # the kernel counts these under user and nice as well


def machine_type(
    firmware: Path = _FIRMWARE, variables: Mapping[str, str] = os.environ
) -> str | None:
    """'aws g5.xlarge', or 'aws g5.xlarge spot' where the job file says so. Nothing is asked over
    the network: a machine that is not rented would wait for an answer."""
    try:
        vendor = (firmware / "sys_vendor").read_text(encoding="utf-8").strip()
        product = (firmware / "product_name").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if vendor != "Amazon EC2" or "." not in product:
        return None
    return f"aws {product}{' spot' if variables.get('PACELINE_SPOT') == '1' else ''}"


def this_place() -> str:
    """Equal for two processes if and only if they run on one host.

    Host names repeat (localhost), and hosts made of namespaces share one kernel; both together
    are enough.
    """
    machine = this_machine()
    return f"{socket.gethostname()} {machine}" if machine else socket.gethostname()


def this_machine() -> str:
    """Equal on all hosts that share one kernel; empty where the system does not tell."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def host_names(places: list[str]) -> dict[str, str]:
    """A name for each place in order of rank: its host name, numbered where two share one."""
    names: dict[str, str] = {}
    for place in places:
        if place not in names:
            plain = place.partition(" ")[0] or "host"
            same = sum(name == plain or name.startswith(f"{plain}.") for name in names.values())
            names[place] = f"{plain}.{same + 1}" if plain in names.values() else plain
    return names


class HostProbe:
    """Differences of the host's counters between two looks."""

    def __init__(self, host: str, interface: str, device_uuids: Sequence[str] = ()) -> None:
        """`device_uuids` are those of the devices that the run uses here: of others nothing is
        told."""
        self._host = host
        self._interface = interface
        self._device_uuids = tuple(device_uuids)
        self._link = link_bits_per_second(interface)
        self._nvml = _open_nvml() if device_uuids else None
        self._before = self._counters()
        self._looked_at = time.perf_counter()

    def look(self) -> dict[str, Any]:
        """What happened since the last look."""
        now, counters = time.perf_counter(), self._counters()
        changes = {name: max(counters[name] - self._before[name], 0) for name in counters}
        seconds, self._looked_at, self._before = now - self._looked_at, now, counters
        memory = psutil.virtual_memory()
        processor_seconds = max(changes.pop("processor_seconds"), 1e-9)
        return {
            "host": self._host,
            "seconds": round(seconds, 6),
            "cpu_share": round(changes.pop("busy_seconds") / processor_seconds, 4),
            "stolen_share": round(changes.pop("stolen_seconds") / processor_seconds, 4),
            "memory_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "interface": self._interface,
            "link_bits_per_second": self._link,
            **{name: int(change) for name, change in changes.items()},
            "devices": self._devices(),
        }

    def _counters(self) -> dict[str, float]:
        times = _core_seconds()
        whole = sum(seconds for name, seconds in times.items() if name not in _GUESTS)
        disk = psutil.disk_io_counters()
        network = psutil.net_io_counters(pernic=True).get(self._interface)
        return {
            "processor_seconds": whole,
            "busy_seconds": whole - sum(times.get(name, 0.0) for name in _ASLEEP),
            "stolen_seconds": times.get("steal", 0.0),
            "disk_read_bytes": disk.read_bytes if disk else 0,
            "disk_written_bytes": disk.write_bytes if disk else 0,
            "sent_bytes": network.bytes_sent if network else 0,
            "received_bytes": network.bytes_recv if network else 0,
            "sent_packets": network.packets_sent if network else 0,
            "received_packets": network.packets_recv if network else 0,
        }

    def _devices(self) -> list[dict[str, Any]]:
        if self._nvml is None:
            return []
        nvml = self._nvml
        return [device_figures(nvml, each) for each in used_handles(nvml, self._device_uuids)]


def _core_seconds() -> dict[str, float]:
    """By kind, of the cores that this host may use: the others are no concern of it."""
    mine, each = core_numbers(), psutil.cpu_times(percpu=True)
    own = [each[number] for number in mine if number < len(each)] or each
    return {name: sum(getattr(core, name) for core in own) for name in own[0]._fields}


def _open_nvml() -> Any:
    """NVIDIA's management library where it is installed and finds a driver, else None."""
    try:
        import pynvml  # noqa: PLC0415  (optional)

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml


def used_handles(nvml: Any, uuids: Sequence[str]) -> list[Any]:
    """Of the devices with these UUIDs, which torch writes without the driver's 'GPU-' or 'MIG-'.
    A part of a split card (MIG) tells its memory alone: what the whole card does is not the run's.
    Where none is found, nothing is told of other devices, unless there is only one."""
    handles = _handles(nvml)
    wanted = tuple(uuid.lower() for uuid in uuids if uuid)
    used = [h for h in handles if _text(nvml.nvmlDeviceGetUUID(h)).lower().endswith(wanted)]
    return used or _handles_of_parts(nvml, wanted) or (handles if len(handles) == 1 else [])


def _handles(nvml: Any) -> list[Any]:
    """Some of the devices that are counted may be lost, or forbidden to this user."""
    found = []
    for number in range(int(nvml.nvmlDeviceGetCount())):
        with suppress(nvml.NVMLError):
            found.append(nvml.nvmlDeviceGetHandleByIndex(number))
    return found


def _handles_of_parts(nvml: Any, uuids: Sequence[str]) -> list[Any]:
    found = []
    for uuid in uuids:
        with suppress(nvml.NVMLError):
            found.append(nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid.removeprefix('mig-')}"))
    return found


def device_figures(nvml: Any, handle: Any) -> dict[str, Any]:
    """Not every device tells everything (power, for one); what it does not tell is None."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    device: dict[str, Any] = {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "utilisation": None,
        "memory_bytes": int(memory.used),
        "memory_total_bytes": int(memory.total),
        "power_watts": None,
    }
    with suppress(nvml.NVMLError):
        device["utilisation"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    with suppress(nvml.NVMLError):
        device["power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return device


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
