"""One plan: sizes with their predictions, what limits them, what would help, and the sources."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from paceline.errors import UserError
from paceline.pace.exchange import Size
from paceline.pace.job import Figure, Job, Link
from paceline.pace.predict import Prediction, most_useful_hosts, predict
from paceline.pace.remedies import Remedy, remedies
from paceline.plan.catalogue import Instance, find_instance, link_of_type, moved_to
from paceline.report import foreign
from paceline.report.facts.facts import Facts, Options
from paceline.report.facts.network import link_of
from paceline.report.own.run import read_run
from paceline.report.remedies.job import LAN_LATENCY, calibrated, job_of

_GIVEN_SPREAD: Final = 0.03


@dataclass(frozen=True)
class Question:
    """What the user asks for."""

    hosts: tuple[int, ...]
    devices: int | None = None
    bits_per_second: float | None = None
    """Of the links to plan for."""
    link_then: float | None = None
    """Of the links that the run had, where it does not tell."""
    gradient_bytes: float | None = None
    price_per_hour: float | None = None
    type_name: str | None = None


@dataclass(frozen=True)
class Plan:
    job: Job
    link: Link
    predictions: list[Prediction]
    most_useful_hosts: int | None
    """None where hosts need no network to plan for."""
    remedies: list[Remedy]
    """At the largest size that can train the job."""
    instance: Instance | None = None
    price_per_hour: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def largest(self) -> Size | None:
        """At which remedies are looked for."""
        return next((one.size for one in reversed(self.predictions) if not one.why_not), None)


def plan_from(path: Path, question: Question) -> Plan:
    facts = _facts(path, question)
    refuse_servers(facts)
    job = job_of(facts, question.gradient_bytes)
    return plan(job if question.type_name else calibrated(job, facts), facts, question)


def _facts(path: Path, question: Question) -> Facts:
    options = Options(link_bits_per_second=question.link_then)
    return foreign.read_log(path, options) if foreign.is_foreign(path) else read_run(path, options)


def plan(job: Job, facts: Facts, question: Question) -> Plan:
    instance = find_instance(question.type_name) if question.type_name else None
    if instance is not None:
        precision = str(facts.settings.get("precision", "auto"))
        job = moved_to(job, instance, " ".join(facts.world.device_names), precision)
    devices = question.devices or job.devices_per_host
    sizes = [Size(hosts, devices) for hosts in question.hosts]
    job = replace(job, devices_per_host=devices)
    refuse_without_gradients(job, sizes)
    link = _link(facts, instance, question, sizes)
    found = predict(job, link, sizes, question.price_per_hour)
    able = [one.size for one in found if not one.why_not]
    return Plan(
        job=job,
        link=link,
        predictions=found,
        most_useful_hosts=most_useful_hosts(job, link, devices)
        if max(question.hosts) > 1
        else None,
        remedies=remedies(job, link, able[-1]) if able else [],
        instance=instance,
        price_per_hour=question.price_per_hour,
        notes=tuple(_notes(job, link, instance)),
    )


def refuse_servers(facts: Facts) -> None:
    if facts.roles is not None:
        raise UserError(
            f"{facts.run} was trained with parameter servers, and plans are for all-reduce",
            "plan from a short run of the same recipe with strategy=all-reduce",
        )


def refuse_without_gradients(job: Job, sizes: Sequence[Size]) -> None:
    if job.gradient_bytes is None and any(size.processes > 1 for size in sizes):
        raise UserError(
            f"{job.named} does not tell how large the gradients are, which hosts exchange",
            "give it: --gradients 243MB (4 bytes for each parameter that is trained)",
        )


def _link(
    facts: Facts, instance: Instance | None, question: Question, sizes: Sequence[Size]
) -> Link:
    if question.bits_per_second:
        speed = Figure(question.bits_per_second, _GIVEN_SPREAD, "given with --network")
        return Link(speed, LAN_LATENCY)
    if instance is not None and instance.baseline_bits_per_second:
        return link_of_type(instance)
    told = link_of(facts)
    if told:
        return Link(Figure(told, _GIVEN_SPREAD, f"the hosts of {facts.run}"), LAN_LATENCY)
    if all(size.hosts == 1 for size in sizes):
        return Link(Figure(1e9, 0.0, "not needed"), LAN_LATENCY)
    raise UserError(
        f"{facts.run} does not tell how fast a link between hosts would be",
        "give it: --network 1Gbit, or --type for a machine to rent; "
        "`paceline hosts check` measures one",
    )


def _notes(job: Job, link: Link, instance: Instance | None) -> list[str]:
    notes = []
    if link.burst_bits_per_second and instance:
        notes.append(
            f"{instance.name} may send {link.burst_bits_per_second / 1e9:g} Gbit/s for some "
            f"minutes; a long run gets {link.bits_per_second.value / 1e9:g}"
        )
    if job.micro_batches is None and not job.grows_with_world:
        notes.append("the batch of a step stays the same, so each host gets a smaller part of it")
    return notes
