"""Whether a plan can be had, what it costs, and what to do where it cannot. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.cloud.facts import CloudFacts, Machine, Wanted
from paceline.cloud.quotas import quota_of
from paceline.cloud.skypilot import cluster_behind
from paceline.units import count_of, format_seconds


@dataclass(frozen=True)
class Row:
    mark: str
    """'ok', 'FAIL' or '?'."""
    what: str
    fix: str = ""


def judge(wanted: Wanted, facts: CloudFacts) -> list[Row]:
    return [
        *_machine(wanted, facts),
        *_offer(wanted, facts),
        *_quota(wanted, facts),
        *_network(facts),
        *_image(facts),
        *_price(wanted, facts),
    ]


def can_be_had(rows: Sequence[Row]) -> bool:
    return all(row.mark != "FAIL" for row in rows)


def _machine(wanted: Wanted, facts: CloudFacts) -> Iterator[Row]:
    gpus = f", {facts.num_gpus} x {facts.gpu}" if facts.num_gpus else ", no GPU"
    yield Row("ok", f"{wanted.num_hosts} x {wanted.type}: {facts.num_vcpus} vCPUs{gpus} each")


def _offer(wanted: Wanted, facts: CloudFacts) -> Iterator[Row]:
    if facts.zones:
        yield Row("ok", f"offered in {', '.join(facts.zones)}; hosts of one run belong into one")
    else:
        yield Row("FAIL", f"{wanted.type} is not offered in {wanted.region}", "--region ANOTHER")


def _quota(wanted: Wanted, facts: CloudFacts) -> Iterator[Row]:
    quota = quota_of(wanted.type, wanted.spot)
    needed = wanted.num_hosts * facts.num_vcpus
    if quota is None or facts.quota_vcpus is None:
        why = facts.unknown.get("quota", "its family is not known here")
        yield Row("?", f"limit of vCPUs not known: {why}", "look under Service Quotas, EC2")
        return
    used = facts.used_vcpus or 0.0
    free = facts.quota_vcpus - used
    told = f"{quota.family}: {facts.quota_vcpus:.0f} vCPUs, {used:.0f} in use, {needed} wanted"
    if needed <= free:
        yield Row("ok", told)
        return
    asked = (
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--quota-code {quota.code} --desired-value {used + needed:.0f} --region {wanted.region}"
    )
    yield Row("FAIL", f"{told}; too few", f"{asked}   (answered within hours or days)")


def _network(facts: CloudFacts) -> Iterator[Row]:
    if facts.baseline_gbit is None:
        yield Row("?", f"bandwidth not known: {facts.unknown.get('network', 'AWS does not say')}")
        return
    burst = facts.burst_gbit or facts.baseline_gbit
    told = f"network: {facts.baseline_gbit:g} Gbit/s"
    if burst > facts.baseline_gbit:
        told += f", up to {burst:g} for minutes; a training of hours gets the first figure"
    yield Row("ok", told)


def _image(facts: CloudFacts) -> Iterator[Row]:
    if facts.image is None:
        yield Row("?", f"image not known: {facts.unknown.get('image', 'not found')}")
    else:
        yield Row("ok", f"image: {facts.image}")


def _price(wanted: Wanted, facts: CloudFacts) -> Iterator[Row]:
    spot = min(facts.price_spot.items(), key=lambda item: item[1], default=None)
    if facts.price_on_demand is None:
        yield Row("?", f"price on demand not known: {facts.unknown.get('price', 'not found')}")
    else:
        yield Row("ok", f"on demand: {_cost(wanted, facts.price_on_demand)}")
    if spot is None:
        yield Row("?", f"spot price not known: {facts.unknown.get('spot', 'none in 24 hours')}")
    else:
        yield Row("ok", f"spot: {_cost(wanted, spot[1])} in {spot[0]}, at this moment")


def _cost(wanted: Wanted, price: float) -> str:
    whole = price * wanted.num_hosts
    told = f"${price:.3f} per host and hour, ${whole:.2f} for all per hour"
    return f"{told}, ${whole * wanted.hours:.2f} for {wanted.hours:g} h" if wanted.hours else told


def render(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        lines.append(f"{row.mark:<4}  {row.what}")
        if row.fix:
            lines.append(f"      fix: {row.fix}")
    return "\n".join(lines)


def describe_machine(machine: Machine) -> str:
    age = format_seconds(machine.since_seconds)
    told = f"{machine.id}  {machine.type}  {machine.region}  {machine.state} for {age}"
    told += f"  '{machine.name}'" if machine.name else ""
    if machine.price_per_hour is None:
        return f"{told}  price not known"
    cost = machine.price_per_hour * machine.since_seconds / 3600
    if machine.state != "running":
        return f"{told}  only its disks cost"
    return f"{told}  about ${cost:.2f} so far, ${machine.price_per_hour:.3f} per hour"


def sum_up(machines: Sequence[Machine]) -> str:
    """How many, and what all of them cost as long as they stay."""
    running = [machine for machine in machines if machine.state == "running"]
    known = [m.price_per_hour for m in running if m.price_per_hour is not None]
    told = f"{count_of(len(machines), 'machine')} up or stopped"
    if not known:
        return told
    more = f" (of {len(running) - len(known)} the price is not known)"
    return f"{told}, ${sum(known):.2f} per hour{more if len(known) < len(running) else ''}"


def end_commands(machines: Sequence[Machine], clusters: Sequence[str] = ()) -> list[str]:
    """One command per cluster that SkyPilot remembers here, and one per region for the rest."""
    named = {m.id: cluster_behind(m.cluster, clusters) for m in machines if m.cluster}
    known = sorted({name for name in named.values() if name is not None})
    commands = [f"sky down {shlex.quote(name)}" for name in known]
    alone = [machine for machine in machines if named.get(machine.id) is None]
    for region in sorted({machine.region for machine in alone}):
        ids = " ".join(sorted(machine.id for machine in alone if machine.region == region))
        commands.append(f"aws ec2 terminate-instances --region {region} --instance-ids {ids}")
    return commands
