"""What a reviewer would say of an observed script: mistakes that this run gives evidence of.

Each finding is a judgement of what was counted (`habits` events), of the phases, and of what the
first step told; a guess is none. Pure functions of plain data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.pace.predict import Range
from paceline.pace.remedies import faster_compute, more_workers
from paceline.record.events import Event
from paceline.record.schema import CHECKPOINT, EVALUATE, INPUT, UNEXPLAINED
from paceline.report.facts.arithmetic import AUTOCAST, lighter_precision
from paceline.report.facts.facts import Facts, Finding
from paceline.report.remedies.offer import gain_or_none, gain_without
from paceline.report.remedies.situation import TENSOR_CORES
from paceline.units import count_of, format_seconds, percent

_EVERY_STEP = 0.9
"""Of the steps: what happens in so many happens in each."""
_LEAST_STEPS = 10
_SLOW_INPUT = 0.25
_FELT = 0.02
"""Of the wall time: what costs less is not worth a line."""
_EXTRA_SHARE = 0.05
_MANY_SHAPES = 3
_FEW_RATES = 2
_STEPS_OF_SCHEDULE = 50


@dataclass(frozen=True)
class Seen:
    """Of the whole run."""

    facts: Facts
    habits: Mapping[int, Mapping[str, Any]]
    """The last word of each rank."""
    begins: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def first(self) -> Mapping[str, Any]:
        return self.habits.get(min(self.habits, default=0), {})

    def listed(self, name: str) -> list[dict[str, Any]]:
        found = self.first.get(name)
        return (
            [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
        )

    @property
    def uses(self) -> Mapping[str, Any]:
        found = self.first.get("uses")
        return found if isinstance(found, dict) else {}

    @property
    def world_size(self) -> int:
        return self.facts.world.size or 1

    @property
    def on_device(self) -> bool:
        return str(self.facts.begin.get("device", "cpu")) != "cpu"


def find_mistakes(facts: Facts, ranks: Mapping[int, Sequence[Event]]) -> tuple[Finding, ...]:
    """`ranks`: the events of each."""
    habits = {rank: _last(events, "habits").get("habits", {}) for rank, events in ranks.items()}
    told = {rank: found for rank, found in habits.items() if isinstance(found, dict) and found}
    if not told:
        return ()
    begins = {rank: _last(events, "begin") for rank, events in ranks.items()}
    seen = Seen(facts, told, begins)
    return tuple(finding for judge in _JUDGES for finding in _judged(judge, seen))


def _judged(judge: "Judge", seen: Seen) -> list[Finding]:
    """Of a line that is not as it should be, nothing is found."""
    try:
        return list(judge(seen))
    except (AttributeError, TypeError, ValueError):
        return []


def _last(events: Sequence[Event], kind: str) -> Mapping[str, Any]:
    found = [event for event in events if event["kind"] == kind]
    return found[-1] if found else {}


def _order_never_changes(seen: Seen) -> Iterator[Finding]:
    for sampler in seen.listed("samplers"):
        passes, calls = sampler.get("num_passes", 0), sampler.get("num_set_epoch", 0)
        if sampler.get("shuffle") and passes >= 2 and calls < passes - 1:
            yield Finding(
                "the order of samples is the same in every epoch",
                f"set_epoch of the DistributedSampler was called {calls} times in {passes} epochs",
                sampler.get("place", ""),
                "call sampler.set_epoch(epoch) at the beginning of every epoch",
            )


def _everybody_validates_all(seen: Seen) -> Iterator[Finding]:
    """Known by as many batches on every rank as a loader without a distributed sampler has."""
    if seen.world_size < 2:
        return
    for loader in _evaluating(seen.first):
        whole = loader.get("num_batches")
        others = [
            other
            for rank in seen.habits
            for other in _evaluating(seen.habits[rank])
            if other.get("place") == loader.get("place")
        ]
        is_whole = loader.get("sampler") != "DistributedSampler" and len(others) > 1
        if is_whole and whole and all(_passes_whole(other) for other in others):
            yield Finding(
                f"every one of the {seen.world_size} processes validates on all of the data",
                f"each took {whole:,} batches in a pass, from a {loader.get('sampler')}",
                loader.get("place", ""),
                "give the validation loader a DistributedSampler(shuffle=False) and add up the "
                "results with all_reduce",
                _gain_of_run(seen, _evaluation_seconds(seen) * (1 - 1 / seen.world_size)),
            )


def _evaluating(habits: Mapping[str, Any]) -> list[dict[str, Any]]:
    loaders = habits.get("loaders")
    found = loaders if isinstance(loaders, list) else []
    return [
        loader for loader in found if isinstance(loader, dict) and not loader.get("is_training")
    ]


def _passes_whole(loader: Mapping[str, Any]) -> bool:
    got, passes = loader.get("num_batches_got", 0), max(loader.get("num_passes", 1), 1)
    return bool(got) and got >= passes * int(loader.get("num_batches") or 0) > 0


def _too_few_workers(seen: Seen) -> Iterator[Finding]:
    facts, times = seen.facts, seen.facts.world.times
    share = facts.verdict.shares.get(INPUT, 0.0)
    loader = facts.begin.get("loader")
    if times is None or share < _SLOW_INPUT or not isinstance(loader, dict):
        return
    workers = int(loader.get("workers") or 0)
    step, work = facts.verdict.step_seconds, facts.verdict.without_input_seconds
    units = facts.num_units / max(facts.num_steps, 1) / seen.world_size
    gives = f"{units / step:,.0f} samples/s" if step else ""
    takes = f"{units / work:,.0f}" if work > 0 else "far more"
    who = "the training process itself" if not workers else count_of(workers, "worker")
    wanted = max(round(max(workers, 1) / max(1 - share, 0.05)), workers + 1)
    yield Finding(
        "too few loader workers",
        f"{who} of a process gives {gives}, the model would take {takes}: {percent(share)} of a "
        "step waits for its batch",
        _training_place(seen),
        f"DataLoader(..., num_workers={wanted}), as far as there are cores",
        gain_or_none(facts, more_workers(wanted / max(workers, 1))),
    )


def _training_place(seen: Seen) -> str:
    places = [one.get("place", "") for one in seen.listed("loaders") if one.get("is_training")]
    return places[0] if places else ""


def _reads_in_every_step(seen: Seen) -> Iterator[Finding]:
    steps = seen.facts.num_steps
    if steps < _LEAST_STEPS:
        return
    for read in seen.listed("reads"):
        count, on_device = int(read.get("count", 0)), read.get("device") != "cpu"
        if count < _EVERY_STEP * steps:
            continue
        cost = "" if on_device else " (this costs nothing on a CPU)"
        yield Finding(
            "a value is read from a tensor in every step",
            f"{count:,} times in {steps:,} steps; on a GPU each waits until all queued work is done"
            f"{cost}",
            str(read.get("place", "")),
            "add up `loss.detach()` and read the sum once every 50 steps or so",
        )


def _workers_start_anew(seen: Seen) -> Iterator[Finding]:
    wall = seen.facts.wall_seconds
    for loader in seen.listed("loaders"):
        passes, seconds = int(loader.get("num_passes", 0)), float(loader.get("start_seconds", 0.0))
        if not loader.get("workers") or loader.get("persistent") or passes < 2:
            continue
        if seconds >= _FELT * wall or passes >= 3:
            yield Finding(
                "loader processes are started anew in every epoch",
                f"{passes} times, {format_seconds(seconds)} in all until they were there; then "
                "each has to fill its queue again",
                str(loader.get("place", "")),
                "DataLoader(..., persistent_workers=True)",
                _gain_of_run(seen, seconds),
            )


def _unpinned(seen: Seen) -> Iterator[Finding]:
    loader = seen.facts.begin.get("loader")
    if seen.on_device and isinstance(loader, dict) and not loader.get("pinned"):
        yield Finding(
            "batches are copied to the device from memory that is not pinned",
            "the loader has pin_memory=False, so every copy waits",
            _training_place(seen),
            "DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        )


def _too_many_threads(seen: Seen) -> Iterator[Finding]:
    threads = seen.facts.environment.get("threads")
    processes = _most_on_a_machine(seen)
    cores = _num_cores(seen)
    if seen.on_device or not isinstance(threads, int) or not cores or processes < 2:
        return
    if threads * processes > cores:
        yield Finding(
            "more threads than cores",
            f"{processes} processes of a machine with {threads} threads each share {cores} cores",
            "",
            f"OMP_NUM_THREADS={max(cores // processes, 1)} in the environment, or "
            f"torch.set_num_threads({max(cores // processes, 1)})",
        )


def _most_on_a_machine(seen: Seen) -> int:
    machines = [str(begin.get("machine") or begin.get("host")) for begin in seen.begins.values()]
    return max((machines.count(machine) for machine in machines), default=0)


def _num_cores(seen: Seen) -> int:
    cores = {core for begin in seen.begins.values() for core in begin.get("cores") or []}
    return len(cores)


def _schedule_unused(seen: Seen) -> Iterator[Finding]:
    schedulers, rates = seen.listed("schedulers"), seen.facts.rate.logged
    if not schedulers or seen.facts.num_steps < _STEPS_OF_SCHEDULE or not len(rates):
        return
    used = {round(float(rate), 12) for rate in rates.values}
    if len(used) <= _FEW_RATES:
        kinds = ", ".join(str(one.get("kind")) for one in schedulers)
        yield Finding(
            "the learning-rate schedule hardly does anything",
            f"{kinds}: {count_of(len(used), 'rate')} in {seen.facts.num_steps:,} steps",
            str(schedulers[0].get("place", "")),
            "step it as often as its numbers mean (in batches or in epochs), or choose numbers "
            "that fit the length of this run",
        )


def _saves_lack(seen: Seen) -> Iterator[Finding]:
    saved = seen.listed("saved")
    names = [str(name).lower() for one in saved for name in one.get("names", [])]
    if not saved:
        return
    lacking = [what for what, words in _wanted_in_saves(seen).items() if not _has(names, words)]
    if lacking:
        yield Finding(
            f"what is saved lacks the {' and the '.join(lacking)}",
            f"the names in it: {', '.join(names[:12])}; a run that goes on from it is another run",
            str(saved[-1].get("place", "")),
            "save state_dict() of each beside the weights, and load them when going on",
        )


def _wanted_in_saves(seen: Seen) -> dict[str, tuple[str, ...]]:
    wanted: dict[str, tuple[str, ...]] = {"optimizer": ("optim",)}
    if seen.listed("schedulers"):
        wanted["scheduler"] = ("sched",)
    if "scaler" in seen.uses:
        wanted["gradient scaler"] = ("scaler",)
    wanted["position (epoch or step)"] = ("epoch", "step", "iter", "position", "sampler")
    return wanted


def _has(names: Sequence[str], words: tuple[str, ...]) -> bool:
    return any(word in name for name in names for word in words)


def _recompiles(seen: Seen) -> Iterator[Finding]:
    shapes = int(seen.first.get("num_shapes", 0))
    if "compile" in seen.uses and shapes > _MANY_SHAPES:
        yield Finding(
            "batches of changing shapes go through a compiled model",
            f"{shapes} shapes were seen; each new one may compile the model again",
            str(seen.uses["compile"]),
            "pad batches to a few sizes, drop_last=True, or torch.compile(..., dynamic=True)",
        )


def _first_rank_does_more(seen: Seen) -> Iterator[Finding]:
    times = seen.facts.world.times
    if times is None or len(times.ranks) < 2:
        return
    beside = times.of(EVALUATE, CHECKPOINT, UNEXPLAINED).mean(axis=1)
    extra = float(beside[0] - beside[1:].max())
    step = seen.facts.verdict.step_seconds + float(times.of(EVALUATE).mean())
    if step > 0 and extra > _EXTRA_SHARE * step:
        yield Finding(
            "the first process does work for which the others wait",
            f"{format_seconds(extra)} a step more than any other in evaluation, saving and what no "
            f"phase explains ({percent(extra / step)} of the step)",
            "",
            "share validation out, save in the background, or do it less often",
            gain_without(step, extra),
        )


def _searches_unused(seen: Seen) -> Iterator[Finding]:
    for network in seen.listed("networks"):
        if network.get("finds_unused"):
            yield Finding(
                "DDP looks for unused parameters in every step",
                "find_unused_parameters=True walks the whole graph after each forward pass",
                str(network.get("place", "")),
                _leave_out_search(str(network.get("framework", "")))
                + ", unless some parameters really get no gradient in some steps",
            )


def _leave_out_search(framework: str) -> str:
    """Where it is set: frameworks make the DDP network themselves."""
    if framework == "transformers":
        return "TrainingArguments(ddp_find_unused_parameters=False)"
    if framework == "accelerate":
        return "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs()])"
    return 'Trainer(strategy="ddp")' if "lightning" in framework else "remove it"


def _full_precision(seen: Seen) -> Iterator[Finding]:
    begin, lighter = seen.facts.begin, lighter_precision(seen.facts)
    if lighter is None or begin.get("autocast") or (lighter == "bf16" and begin.get("tf32")):
        return
    yield Finding(
        "full precision on a card with tensor cores",
        f"compute capability {begin['compute_capability']}, all products in fp32",
        "",
        f"{AUTOCAST[lighter]} around the forward pass",
        gain_or_none(seen.facts, faster_compute(TENSOR_CORES)),
    )


def _gain_of_run(seen: Seen, saved_seconds: float) -> Range | None:
    """When so many seconds of the whole run fall away."""
    return gain_without(seen.facts.wall_seconds, saved_seconds)


def _evaluation_seconds(seen: Seen) -> float:
    return seen.facts.phases.get(EVALUATE, 0.0)


Judge = Callable[[Seen], Iterator[Finding]]
_JUDGES: tuple[Judge, ...] = (
    _too_few_workers,
    _order_never_changes,
    _everybody_validates_all,
    _first_rank_does_more,
    _reads_in_every_step,
    _workers_start_anew,
    _unpinned,
    _too_many_threads,
    _schedule_unused,
    _saves_lack,
    _recompiles,
    _searches_unused,
    _full_precision,
)
"""What costs most comes first."""
