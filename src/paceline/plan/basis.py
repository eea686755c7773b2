"""What a plan rests on: a run, a log, trial steps, or a recipe whose work was counted."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paceline.errors import UserError
from paceline.pace.job import Exchange, Figure, Job, Link, Schedule
from paceline.pace.remedies import exchange_of
from paceline.plan.elsewhere import Then
from paceline.report import foreign
from paceline.report.facts.facts import Facts, Options
from paceline.report.facts.network import link_of
from paceline.report.own.run import read_run
from paceline.report.remedies.job import LAN_LATENCY, calibrated, job_of
from paceline.settings import Recipe, ReduceSettings
from paceline.tasks.memory import Memory
from paceline.units import count_of

if TYPE_CHECKING:
    from paceline.train.measure.work import Work

_GIVEN_SPREAD: Final = 0.03
_USUAL_JITTER: Final = Figure(0.02, 0.5, "assumed: nothing was measured")
_PLAIN, _AUTO = "plain", "auto"
_NO_WIRE_MEASURED: Final = Figure(1.0, 0.05, "nobody measured a link between hosts of this job")
NOT_MEASURED: Final = Figure(0.0, 0.0, "not measured")
_SNAPSHOT_BYTES_PER_SECOND: Final = 1.5e9
"""What a save copies while the loop stands still; writing goes on beside."""


@dataclass(frozen=True)
class MemoryNeeds:
    """Of one process."""

    how: str
    estimate: Memory | None = None
    measured_bytes: float | None = None

    def in_precision(self, precision: str) -> float | None:
        if self.estimate is not None:
            return self.estimate.total(_kind(precision))
        return self.measured_bytes

    def micro_within(self, num_bytes: float, precision: str) -> int | None:
        """Micro-batches of this size would fit; None where none does, or nobody can tell."""
        if self.estimate is None:
            return None
        return self.estimate.micro_that_fits(num_bytes, _kind(precision))


def _kind(precision: str) -> str:
    return "fp32" if precision in ("fp32", "tf32", "") else "bf16"


@dataclass(frozen=True)
class Basis:
    job: Job
    then: Then
    link: Link | None = None
    """Between the hosts that the job was measured on, or that the doctor looked at."""
    memory: MemoryNeeds | None = None
    device_bytes: float | None = None
    """Of a device (a host without any) that it was measured on."""
    price_per_hour: float | None = None
    notes: tuple[str, ...] = ()


def basis_of_path(path: Path, link_then: float | None, gradient_bytes: float | None) -> Basis:
    """Of a run, ours or observed, or of another tool's log."""
    options = Options(link_bits_per_second=link_then)
    is_log = foreign.is_foreign(path)
    facts = foreign.read_log(path, options) if is_log else read_run(path, options)
    return basis_of_facts(facts, gradient_bytes)


def basis_of_facts(facts: Facts, gradient_bytes: float | None = None) -> Basis:
    refuse_servers(facts)
    reduce = _reduce_of(facts)
    job = job_of(facts, gradient_bytes)
    if reduce is not None and gradient_bytes is None:
        job = replace(job, gradient_bytes=_all_gradients(facts))
    job = calibrated(with_reduce(job, reduce), facts)
    if (facts.world.num_hosts or 1) == 1:
        job = waiting_as_jitter(job)
    return Basis(
        job=replace(job, precision=str(facts.begin.get("precision") or "")),
        then=Then(" ".join(facts.world.device_names), str(facts.settings.get("precision", "auto"))),
        link=_link_of(facts),
        memory=_memory_of(facts),
        device_bytes=_device_bytes(facts),
        price_per_hour=facts.options.price_per_hour,
        notes=(*_notes_on(facts), *_notes_on_reduce(reduce)),
    )


def _reduce_of(facts: Facts) -> ReduceSettings | None:
    """Of a run of ours; several processes record what they did (and `auto` chose), one alone has
    only the recipe's word. None for plain."""
    section, did = facts.settings.get("reduce"), facts.begin.get("reduce")
    if not isinstance(section, dict) or (did or section.get("kind")) in (None, _PLAIN):
        return None
    told = {name: section[name] for name in ("parts", "rank", "share") if name in section}
    every = facts.begin.get("exchanged_every") if did else section.get("every")
    return ReduceSettings.model_validate(told | {"kind": did or section["kind"], "every": every})


def _all_gradients(facts: Facts) -> Figure | None:
    """Whatever part of them the run sent."""
    whole = facts.begin.get("gradient_bytes")
    return Figure(float(whole), 0.0, f"the network of {facts.run}") if whole else None


def waiting_as_jitter(job: Job) -> Job:
    """Processes of one host wait for the slowest of them, not for a wire: what they waited more
    than the formulas say is the spread of their steps, and no factor for links between hosts."""
    wider = replace(job.jitter, value=job.network.value * job.jitter.value)
    if job.network.value != 1.0:
        wider = replace(wider, source=f"what processes waited for each other, {job.network.source}")
    return replace(job, jitter=wider, network=_NO_WIRE_MEASURED)


def with_reduce(job: Job, reduce: ReduceSettings | None) -> Job:
    if reduce is None:
        return job
    exchange = exchange_of(reduce.kind, job.exchange, reduce.every or 1, reduce.wire_share)
    return replace(job, exchange=exchange)


def _notes_on_reduce(reduce: ReduceSettings | None) -> list[str]:
    if reduce is None or reduce.kind == _PLAIN:
        return []
    if reduce.kind == _AUTO:
        return ["reduce=auto chooses before the first step; this plan is for plain"]
    every = f", every {count_of(reduce.every, 'step')}" if reduce.every else ""
    return [f"gradients are exchanged as reduce={reduce.kind} does{every} (docs/reduce.md)"]


def refuse_servers(facts: Facts) -> None:
    if facts.roles is not None:
        raise UserError(
            f"{facts.run} was trained with parameter servers, and plans are for all-reduce",
            "plan from a short run of the same recipe with strategy=all-reduce",
        )


def _link_of(facts: Facts) -> Link | None:
    told = link_of(facts)
    source = f"the hosts of {facts.run}"
    return Link(Figure(told, _GIVEN_SPREAD, source), LAN_LATENCY) if told else None


def _memory_of(facts: Facts) -> MemoryNeeds | None:
    """On hosts without devices, what was in use there; nobody records that of a device yet."""
    known = [use.memory_bytes for use in facts.world.hosts if use.memory_bytes > 0]
    if not known or facts.world.device_names:
        return None
    each = max(known) / max((facts.world.size or 1) // (facts.world.num_hosts or 1), 1)
    how = "what the host had in use while it trained, all programs"
    return MemoryNeeds(how, measured_bytes=each)


def _device_bytes(facts: Facts) -> float | None:
    known = [use.memory_total_bytes for use in facts.world.hosts if use.memory_total_bytes > 0]
    return min(known) if known and not facts.world.device_names else None


def _notes_on(facts: Facts) -> list[str]:
    if facts.is_own and not facts.is_observed:
        return []
    return [
        "each process keeps its own batch, so that more of them do more in a step; --same-batch "
        "plans for a step that is shared out instead"
    ]


def basis_of_recipe(recipe: Recipe, name: str, work: "Work") -> Basis:
    """Before anything is measured: for one process, without its time."""
    micro_batches = recipe.num_micro_batches(1)
    job = Job(
        unit=work.unit,
        units_per_step=work.units_per_micro_batch * micro_batches,
        grows_with_world=recipe.batch.per_device is not None,
        measured_processes=1,
        devices_per_host=1,
        compute=NOT_MEASURED,
        update=NOT_MEASURED,
        gradient_bytes=Figure(work.sizes.gradient_bytes, 0.0, "the recipe's network"),
        jitter=_USUAL_JITTER,
        exchange=Exchange(),
        micro_batches=micro_batches,
        num_parameters=work.num_parameters,
        checkpoint_bytes=work.sizes.checkpoint_bytes,
        flops_per_unit=work.flops_per_unit,
        schedule=schedule_of(recipe, work.sizes.checkpoint_bytes),
        named=name,
    )
    then = Then(precision=recipe.precision)
    notes = (_counted_on(work), *_notes_on_reduce(recipe.reduce))
    job = with_reduce(job, recipe.reduce)
    return Basis(job, then, memory=_memory_by(work), notes=notes)


def _memory_by(work: "Work") -> MemoryNeeds | None:
    return MemoryNeeds("estimated from the recipe", work.memory) if work.memory else None


def _counted_on(work: "Work") -> str:
    if work.is_made_up:
        return (
            "the recipe's data is not here: operations and memory are those of a micro-batch of "
            "the usual shape"
        )
    return "operations and memory are those of a micro-batch of the data"


def schedule_of(recipe: Recipe, checkpoint_bytes: float) -> Schedule:
    return Schedule(
        steps=recipe.steps,
        save_seconds=checkpoint_bytes / _SNAPSHOT_BYTES_PER_SECOND,
        save_every=recipe.checkpoint.every_steps,
    )


def basis_of_trial(facts: Facts, recipe: Recipe, name: str, whole_batches: float) -> Basis:
    """Trial steps of a part of a step's micro-batches: `whole_batches` of them make a step."""
    found = basis_of_facts(facts)
    job = found.job
    size = facts.world.size or 1
    checkpoint_bytes = job.checkpoint_bytes or _checkpoint_bytes(recipe)
    steps = replace(
        job,
        units_per_step=job.units_per_step * whole_batches,
        grows_with_world=recipe.batch.per_device is not None,
        micro_batches=recipe.num_micro_batches(size),
        checkpoint_bytes=checkpoint_bytes,
        schedule=schedule_of(recipe, checkpoint_bytes or 0.0),
        input_wait=job.input_wait * whole_batches,
        named=name,
    )
    return replace(found, job=steps)


def _checkpoint_bytes(recipe: Recipe) -> float | None:
    from paceline.tasks.sizes import sizes_of  # noqa: PLC0415  (may import torch)

    sizes = sizes_of(recipe)
    return sizes.checkpoint_bytes if sizes else None


def refuse_without(job: Job) -> None:
    if job.gradient_bytes is None:
        raise UserError(
            f"{job.named} does not tell how large the gradients are, which hosts exchange",
            "give it: --gradients 243MB (4 bytes for each parameter that is trained)",
        )
