"""Machines that can be rented, devices and processors: from small dated tables that are shipped."""

import csv
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from paceline.errors import UserError
from paceline.pace.job import Figure, Link

CLOUD_LATENCY: Final = Figure(100e-6, 0.6, "usual between machines of one zone")
_BASELINE_SPREAD: Final = 0.05
_TERA, _GIGA = 1e12, 1e9


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

    @property
    def memory_of_device(self) -> float:
        """Of one device; of the machine where it has none."""
        return self.device_bytes if self.num_devices else self.memory_bytes


@dataclass(frozen=True)
class Device:
    name: str
    peak_flops: dict[str, float]
    """By precision; what the device lacks is not there."""
    memory_bytes: float
    inside_bytes_per_second: float
    """Each way, to the other devices of its host."""
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
            baseline_bits_per_second=float(row["baseline_gbit"]) * _GIGA,
            burst_bits_per_second=float(row["burst_gbit"]) * _GIGA,
        )
        for row in _rows("instances.csv")
    }


@cache
def devices() -> dict[str, Device]:
    kinds = ("fp32", "tf32", "fp16", "bf16")
    return {
        row["device"]: Device(
            name=row["device"],
            peak_flops={kind: float(row[kind]) * _TERA for kind in kinds if row[kind]},
            memory_bytes=float(row["memory_gib"]) * 2**30,
            inside_bytes_per_second=float(row["inside_gbyte"]) * _GIGA,
            source=row["source"],
        )
        for row in _rows("devices.csv")
    }


@cache
def _processors() -> dict[str, Device]:
    """One virtual core each, by the family of instance types."""
    return {
        row["family"]: Device(
            row["name"], {"fp32": float(row["gflops_per_vcpu"]) * _GIGA}, 0.0, 0.0, row["name"]
        )
        for row in _rows("processors.csv")
    }


def find_instance(name: str) -> Instance:
    found = instances().get(name)
    if found is None:
        near = _nearest(name, instances())
        raise UserError(
            f"no instance type '{name}' is known",
            f"one of {near}?" if near else "e.g. g4dn.2xlarge, g5.xlarge, p4d.24xlarge",
        )
    return found


def find_device(instance: Instance) -> Device:
    """Its device, or all of its virtual cores as one."""
    if instance.num_devices:
        found = devices().get(instance.device)
        if found is not None:
            return found
        raise _unknown(instance.device, devices())
    family = instance.name.partition(".")[0]
    core = _processors().get(family)
    if core is None:
        raise _unknown(f"the processor of {instance.name}", _processors())
    peak = {kind: instance.num_cores * value for kind, value in core.peak_flops.items()}
    return Device(core.name, peak, instance.memory_bytes, 0.0, core.source)


def _unknown(name: str, known: Iterable[str]) -> UserError:
    near = _nearest(name, known)
    return UserError(
        f"the peak of {name} is not in the tables"
        + (f"; the nearest that are: {near}" if near else ""),
        "plan from a run on such a machine: paceline plan --from RUN",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, list(known), n=4, cutoff=0.5))


def link_of_type(instance: Instance) -> Link:
    """A day of training gets the baseline: the burst lasts for minutes."""
    source = f"{instance.name}'s baseline in the catalogue"
    speed = Figure(instance.baseline_bits_per_second, _BASELINE_SPREAD, source)
    burst = instance.burst_bits_per_second
    return Link(speed, CLOUD_LATENCY, burst if burst > instance.baseline_bits_per_second else None)


def precision_on(device: Device, asked: str) -> str:
    """What `precision: auto` takes there, or what was asked for if the device has it."""
    if asked in device.peak_flops:
        return asked
    return next(kind for kind in ("bf16", "fp16", "fp32") if kind in device.peak_flops)
