"""A job on other devices than it was measured on, or on devices before anything was measured: by
its operations and what a data sheet promises."""

from dataclasses import dataclass, replace
from typing import Final

from paceline.errors import UserError
from paceline.pace.job import (
    GLOO_COPYING,
    NCCL_COPYING,
    RING,
    TREE,
    Exchange,
    Figure,
    Job,
)
from paceline.plan.catalogue import Device, Instance, find_device, precision_on

SHARE_OF_PEAK: Final = Figure(
    0.35, 0.4, "training reaches a fifth to a half of a data sheet's peak"
)
_UPDATE_SHARE: Final = 0.04
"""Of forward and backward, where nobody measured the update of the weights."""
_FIXED_ON_DEVICES: Final = Figure(0.1, 0.6, "assumed of devices; see docs/model.md")


@dataclass(frozen=True)
class Then:
    """What the job was measured on."""

    devices: str = ""
    """Names, as the run told them; empty where nothing was measured."""
    precision: str = "auto"
    """As the recipe asks for it."""


def moved_to(job: Job, instance: Instance, then: Then) -> Job:
    """The same job on an instance's devices, as far as a data sheet tells."""
    num_devices = max(instance.num_devices, 1)
    if instance.device and instance.device in then.devices:
        return replace(job, devices_per_host=num_devices)
    if job.flops_per_unit is None:
        raise UserError(
            f"{job.named} does not tell the operations of a {job.unit}, so its time on another "
            "device cannot be told",
            "plan from a run of `paceline train`, or from a run on such a machine",
        )
    device = find_device(instance)
    compute, kind = _compute(job.flops_per_unit, device, then.precision)
    return replace(
        job,
        compute=compute,
        fixed=_FIXED_ON_DEVICES if instance.num_devices else job.fixed,
        update=_update(job, compute),
        exchange=_exchange(job.exchange, instance, device),
        devices_per_host=num_devices,
        precision=kind,
    )


def _compute(flops_per_unit: float, device: Device, asked: str) -> tuple[Figure, str]:
    kind = precision_on(device, asked)
    reached = SHARE_OF_PEAK.value * device.peak_flops[kind]
    source = (
        f"{flops_per_unit / 1e9:.3g} billion operations at {SHARE_OF_PEAK.value:.0%} of the {kind} "
        f"peak of {device.name}"
    )
    return Figure(flops_per_unit / reached, SHARE_OF_PEAK.spread, source), kind


def _update(job: Job, compute: Figure) -> Figure:
    """As much faster as the rest; a share of it where nothing was measured."""
    if not job.update.value:
        on_process = job.units_per_step / job.measured_processes
        seconds = _UPDATE_SHARE * compute.value * on_process
        return Figure(seconds, 0.6, f"assumed: {_UPDATE_SHARE:.0%} of forward and backward")
    faster = max(job.compute.value / compute.value, 1.0) if job.compute.value else 1.0
    return replace(job.update, value=job.update.value / faster, spread=0.5)


def _exchange(old: Exchange, instance: Instance, device: Device) -> Exchange:
    if not instance.num_devices:
        return replace(old, copying=GLOO_COPYING, processors=max(float(instance.num_cores), 1.0))
    faster = NCCL_COPYING.value / old.copying.value
    return replace(
        old,
        copying=NCCL_COPYING,
        coding=replace(old.coding, value=faster * old.coding.value),
        algorithms=(RING, TREE),
        inside_bytes_per_second=device.inside_bytes_per_second,
    )
