"""One plan: sizes with their predictions, what limits them, what would help, and the sources."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from paceline.errors import UserError
from paceline.pace.exchange import Size
from paceline.pace.job import Figure, Job, Link
from paceline.pace.predict import Prediction, most_useful_hosts, predict
from paceline.pace.remedies import Remedy, remedies
from paceline.plan.basis import Basis, MemoryNeeds, refuse_without
from paceline.plan.catalogue import Instance, find_instance, link_of_type
from paceline.plan.elsewhere import moved_to
from paceline.plan.prices import HourPrice, price_of
from paceline.report.remedies.job import LAN_LATENCY
from paceline.units import format_bytes

_GIVEN_SPREAD: Final = 0.03
_COMFORTABLE: Final = 0.9
"""Of a device's memory: the allocator's gaps, and the estimate's error."""


@dataclass(frozen=True)
class Question:
    """What the user asks for."""

    hosts: tuple[int, ...]
    devices: int | None = None
    bits_per_second: float | None = None
    """Of the links to plan for."""
    price_per_hour: float | None = None
    type_name: str | None = None
    is_same_batch: bool = False
    """Of a log or a script: a step's batch is shared out instead of growing."""
    samples_growth: float = 1.0
    """For the same quality, when the batch of a step doubles."""


@dataclass(frozen=True)
class DeviceMemory:
    """What a process needs of its device, and what the device has."""

    needed_bytes: float
    there_bytes: float | None
    fits: bool | None
    """None where it is not known what is there."""
    micro_that_fits: int | None
    how: str


@dataclass(frozen=True)
class Plan:
    job: Job
    link: Link
    predictions: list[Prediction]
    most_useful_hosts: int | None
    """None where hosts need no network to plan for."""
    remedies: list[Remedy]
    """At the largest size that can train the job."""
    memory: DeviceMemory | None = None
    instance: Instance | None = None
    price: HourPrice | None = None
    notes: tuple[str, ...] = ()

    @property
    def largest(self) -> Size | None:
        """At which remedies are looked for."""
        return next((one.size for one in reversed(self.predictions) if not one.why_not), None)


def plan(basis: Basis, question: Question) -> Plan:
    instance = find_instance(question.type_name) if question.type_name else None
    job = _asked(basis.job, question)
    if instance is not None:
        job = moved_to(job, instance, basis.then)
    devices = question.devices or job.devices_per_host
    job = replace(job, devices_per_host=devices)
    sizes = [Size(hosts, devices) for hosts in question.hosts]
    if any(size.processes > 1 for size in sizes):
        refuse_without(job)
    link = _link(basis, instance, question, sizes)
    price = _price(basis, instance, question)
    found = predict(job, link, sizes, price.per_hour if price else None)
    able = [one.size for one in found if not one.why_not]
    memory = memory_on(basis.memory, job, _device_bytes(basis, instance, devices))
    _refuse_what_does_not_fit(job, memory, instance)
    return Plan(
        job=job,
        link=link,
        predictions=found,
        most_useful_hosts=most_useful_hosts(job, link, devices) if sizes[-1].hosts > 1 else None,
        remedies=remedies(job, link, able[-1]) if able else [],
        memory=memory,
        instance=instance,
        price=price,
        notes=(*basis.notes, *_notes(link, instance)),
    )


def _asked(job: Job, question: Question) -> Job:
    grows = job.grows_with_world and not question.is_same_batch
    return replace(job, grows_with_world=grows, samples_growth=question.samples_growth)


def _price(basis: Basis, instance: Instance | None, question: Question) -> HourPrice | None:
    if instance is not None:
        return price_of(instance.name, question.price_per_hour)
    given = question.price_per_hour
    if given is not None:
        return HourPrice(given, "given with --price")
    known = basis.price_per_hour
    return HourPrice(known, "the hosts file") if known is not None else None


def _device_bytes(basis: Basis, instance: Instance | None, devices: int) -> float | None:
    if instance is None:
        return basis.device_bytes / devices if basis.device_bytes else None
    each = max(devices, 1) if not instance.num_devices else 1
    return instance.memory_of_device / each


def memory_on(
    needs: MemoryNeeds | None, job: Job, there_bytes: float | None
) -> DeviceMemory | None:
    needed = needs.in_precision(job.precision) if needs else None
    if needs is None or needed is None:
        return None
    room = _COMFORTABLE * there_bytes if there_bytes else None
    fits = needed <= room if room is not None else None
    smaller = None
    if fits is False and room is not None:
        smaller = needs.micro_within(room, job.precision)
    return DeviceMemory(needed, there_bytes, fits, smaller, needs.how)


def _refuse_what_does_not_fit(
    job: Job, memory: DeviceMemory | None, instance: Instance | None
) -> None:
    """Only what is certain: an estimate beyond all that the device has."""
    if memory is None or instance is None or memory.there_bytes is None:
        return
    if memory.needed_bytes > memory.there_bytes:
        smaller = memory.micro_that_fits
        raise UserError(
            f"{job.named} needs about {format_bytes(memory.needed_bytes)} of a device's memory "
            f"({memory.how}), and {instance.name} has {format_bytes(memory.there_bytes)}",
            f"batch.micro={smaller} fits; or take a type with larger devices"
            if smaller
            else "take a type with larger devices, or a smaller model",
        )


def _link(
    basis: Basis, instance: Instance | None, question: Question, sizes: Sequence[Size]
) -> Link:
    if question.bits_per_second:
        speed = Figure(question.bits_per_second, _GIVEN_SPREAD, "given with --network")
        return Link(speed, LAN_LATENCY)
    if instance is not None and instance.baseline_bits_per_second:
        return link_of_type(instance)
    if basis.link is not None:
        return basis.link
    if all(size.hosts == 1 for size in sizes):
        return Link(Figure(1e9, 0.0, "not needed"), LAN_LATENCY)
    raise UserError(
        f"{basis.job.named} does not tell how fast a link between hosts would be",
        "give it: --network 1Gbit, or --type for a machine to rent; "
        "`paceline hosts check` measures one",
    )


def _notes(link: Link, instance: Instance | None) -> list[str]:
    if not link.burst_bits_per_second or not instance:
        return []
    return [
        f"{instance.name} may send {link.burst_bits_per_second / 1e9:g} Gbit/s for some minutes; "
        f"a long run gets {link.bits_per_second.value / 1e9:g}"
    ]
