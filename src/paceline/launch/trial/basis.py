"""What a plan rests on where there are machines and no run yet: the doctor's probes of the hosts,
and a few trial steps on one of them."""

from dataclasses import replace
from typing import Final

from paceline.doctor.examination import Diagnosis, Purpose, check
from paceline.doctor.rows import render
from paceline.errors import Say, UserError
from paceline.hosts.file import HostsFile
from paceline.launch.trial.steps import Place, for_trial, scratch_run, train_steps
from paceline.pace.exchange import PAYLOAD
from paceline.pace.job import Figure, Link
from paceline.plan.basis import Basis, basis_of_trial
from paceline.report.remedies.job import LAN_LATENCY
from paceline.settings import Recipe

NUM_STEPS: Final = 14
_MEASURED_SPREAD: Final = 0.04
_MOST_PASSES: Final = 2
"""Of a process in a trial step: more would only repeat them."""


def basis_on_hosts(recipe: Recipe, name: str, hosts: HostsFile, say: Say) -> Basis:
    """The doctor first: what would stop a run stops its plan as well."""
    found = check(hosts, Purpose(recipe), say)
    if found.problems:
        raise UserError(
            f"no plan, because of what is wrong with the hosts\n{render(found.problems)}",
            "put that right; `paceline hosts check` looks closer",
        )
    first = replace(hosts, hosts=hosts.hosts[:1], min=None)
    basis = basis_at(recipe, name, Place(first, hosts.hosts[0].devices), say)
    prices = [host.price_per_hour for host in hosts.hosts if host.price_per_hour is not None]
    return replace(
        basis,
        link=_link(found),
        device_bytes=found.device_bytes or basis.device_bytes,
        price_per_hour=sum(prices) / len(prices) if len(prices) == len(hosts.hosts) else None,
    )


def _link(found: Diagnosis) -> Link | None:
    if found.bits_per_second is None:
        return None
    speed = Figure(found.bits_per_second / PAYLOAD, _MEASURED_SPREAD, "measured by the doctor")
    trip = found.round_trip_seconds
    if trip is None:
        return Link(speed, LAN_LATENCY)
    latency = max(trip / 2, LAN_LATENCY.value / 2)
    return Link(speed, Figure(latency, 0.5, "half of the doctor's round trip"))


def basis_at(recipe: Recipe, name: str, place: Place, say: Say) -> Basis:
    """From trial steps with as few micro-batches as tell all."""
    some, whole = _part_of(recipe, place.num_procs or 1)
    say(f"training {NUM_STEPS} trial steps {place.in_words}")
    with scratch_run(place.hosts) as run:
        facts = train_steps(for_trial(some, 0, NUM_STEPS), run, place)
    basis = basis_of_trial(facts, recipe, name, whole)
    how = f"{facts.num_steps} trial steps {place.in_words}"
    job = replace(
        basis.job,
        compute=replace(basis.job.compute, source=how),
        update=replace(basis.job.update, source=how),
    )
    return replace(basis, job=job)


def _part_of(recipe: Recipe, num_procs: int) -> tuple[Recipe, float]:
    """A recipe with fewer micro-batches in a step, and how many times as many the whole has."""
    batch = recipe.batch
    if batch.global_ is None:
        return recipe, 1.0
    wanted = batch.micro_size * num_procs * _MOST_PASSES
    if batch.global_ <= wanted:
        return recipe, 1.0
    part = batch.model_copy(update={"global_": wanted})
    return recipe.model_copy(update={"batch": part}), batch.global_ / wanted
