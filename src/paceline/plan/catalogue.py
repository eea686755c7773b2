"""Machines that can be rented, and devices: from small dated tables that are shipped."""

import csv
import difflib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final

from paceline.errors import UserError
from paceline.pace.job import NCCL_COPYING, RING, TREE, Exchange, Figure, Job, Link

_SHARE_OF_PEAK: Final = Figure(
    0.35, 0.4, "training reaches a fifth to a half of a data sheet's peak"
)
_CLOUD_LATENCY: Final = Figure(80e-6, 0.5, "usual between machines of one zone")
_BASELINE_SPREAD: Final = 0.05


@dataclass(frozen=True)
class Instance:
    name: str
    num_cores: int
    memory_bytes: float
    device: str
    num_devices: int
    device_bytes: float
    baseline_bits_per_second: float
    burst_bits_per_second: float


@dataclass(frozen=True)
class Device:
    name: str
    peak_flops: dict[str, float]
    """By precision; what the device lacks is not there."""
    memory_bytes: float
    source: str


def _rows(table: str) -> list[dict[str, str]]:
    text = (resources.files("paceline.plan") / "tables" / table).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def instances() -> dict[str, Instance]:
    return {
        row["type"]: Instance(
            name=row["type"],
            num_cores=int(row["vcpus"]),
            memory_bytes=float(row["memory_gib"]) * 2**30,
            device=row["device"],
            num_devices=int(row["num_devices"]),
            device_bytes=float(row["device_gib"]) * 2**30,
            baseline_bits_per_second=float(row["baseline_gbit"]) * 1e9,
            burst_bits_per_second=float(row["burst_gbit"]) * 1e9,
        )
        for row in _rows("instances.csv")
    }


@cache
def devices() -> dict[str, Device]:
    kinds = ("fp32", "tf32", "fp16", "bf16")
    return {
        row["device"]: Device(
            name=row["device"],
            peak_flops={kind: float(row[kind]) * 1e12 for kind in kinds if row[kind]},
            memory_bytes=float(row["memory_gib"]) * 2**30,
            source=row["source"],
        )
        for row in _rows("devices.csv")
    }


def find_instance(name: str) -> Instance:
    found = instances().get(name)
    if found is None:
        near = difflib.get_close_matches(name, instances(), n=4, cutoff=0.5)
        raise UserError(
            f"no instance type '{name}' is known",
            f"one of {', '.join(near)}?" if near else "e.g. g4dn.2xlarge, g5.xlarge, p4d.24xlarge",
        )
    return found


def link_of_type(instance: Instance) -> Link:
    """A day of training gets the baseline: the burst lasts for minutes."""
    source = f"{instance.name}'s baseline in the catalogue"
    speed = Figure(instance.baseline_bits_per_second, _BASELINE_SPREAD, source)
    burst = instance.burst_bits_per_second
    return Link(speed, _CLOUD_LATENCY, burst if burst > instance.baseline_bits_per_second else None)


def moved_to(job: Job, instance: Instance, device_then: str, precision: str) -> Job:
    """The same job on an instance's devices, as far as a data sheet tells."""
    if not instance.device or instance.device in device_then:
        return job
    device = devices().get(instance.device)
    if device is None:
        raise UserError(
            f"the peak of {instance.device} is not in the table of devices",
            "plan from a run on such a machine",
        )
    if job.flops_per_unit is None:
        raise UserError(
            f"{job.named} does not tell the operations of a {job.unit}, so its time on another "
            "device cannot be told",
            "plan from a run of `paceline train`, or from a run on such a machine",
        )
    kind = precision_on(device, precision)
    reached = _SHARE_OF_PEAK.value * device.peak_flops[kind]
    source = (
        f"{job.flops_per_unit:.3g} operations at {_SHARE_OF_PEAK.value:.0%} of the {kind} peak of "
        f"{device.name}"
    )
    compute = Figure(job.flops_per_unit / reached, _SHARE_OF_PEAK.spread, source)
    faster = job.compute.value / compute.value
    update = replace(job.update, value=job.update.value / max(faster, 1.0), spread=0.5)
    return replace(
        job,
        compute=compute,
        update=update,
        exchange=Exchange(copying=NCCL_COPYING, algorithms=(RING, TREE)),
        devices_per_host=max(instance.num_devices, 1),
    )


def precision_on(device: Device, asked: str) -> str:
    """What `precision: auto` takes there, or what was asked for if the device has it."""
    if asked in device.peak_flops:
        return asked
    return next(kind for kind in ("bf16", "fp16", "fp32") if kind in device.peak_flops)
