"""Reading a run directory into `Facts`. The first process is told; the others show who waited."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paceline.recipe import settings_of_run
from paceline.record.columns import RankRecord, StepColumns, rank_numbers, read_rank
from paceline.record.directory import is_being_trained, read_environment, require_run
from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory
from paceline.record.story import LongStory, Story, join_story
from paceline.report.facts.arithmetic import arithmetic_warnings
from paceline.report.facts.consistency import checked
from paceline.report.facts.durations import booked_by_purpose
from paceline.report.facts.facts import (
    CheckpointContents,
    Facts,
    Learning,
    Options,
    Saving,
    Score,
    StepTimes,
    TrainingSet,
    World,
)
from paceline.report.facts.trend import Points
from paceline.report.facts.verdict import judge
from paceline.report.facts.world_times import WorldTimes, world_times
from paceline.report.own.busyness import cpu_seconds_in_steps, own_cpu_share
from paceline.report.own.checkpoint import checkpoint_cost, newest_contents
from paceline.report.own.data_card import data_card
from paceline.report.own.findings import find_mistakes
from paceline.report.own.hosts import read_hosts
from paceline.report.own.observed import (
    observed_data,
    observed_rate,
    observed_saving,
    observed_warnings,
    with_script_scores,
)
from paceline.report.own.oddities import warnings_of
from paceline.report.own.rate import recorded_rate
from paceline.report.own.step_times import step_times
from paceline.report.prices import find_price
from paceline.report.roles.reading import only_trainers, read_roles, times_out_of_step, with_links
from paceline.report.roles.use import RolesUse

_BYTES_OF_OTHER_RANKS = 8 << 20
"""Read of the files of all ranks but the first, in all; what is more is read in windows."""

_HOW_WALL_TIME = (
    "a steady clock in each process, which setting the time of day does not change; every moment "
    "counts for exactly one phase; these are the figures of the first process"
)
_GUARD_WORDS = ("the loss diverged", "the loss is ")
"""How the warning begins with which training stops itself."""
_SECTIONS = (
    "batch",
    "reduce",
    "schedule",
    "evaluate",
    "checkpoint",
    "target",
    "input",
    "strategy",
)


def read_run(path: Path, options: Options | None = None) -> Facts:
    run = require_run(path)
    settings = _settings(run)
    records = _read_ranks(run)
    launcher = read_events(run.launcher_events)
    long = join_story(records[0], launcher)
    story, begin = long.story, _begin(long.story)
    newest, damages = newest_contents(run)
    environment = read_environment(run)
    roles = read_roles(run, settings, [record.rank for record in records])
    times = _times(long, records, roles)
    world = _world(run, long, records, (begin, environment), times)
    roles = with_links(roles, world.hosts)
    step = _step(story)
    facts = Facts(
        run=path,
        reason=_reason(story, is_being_trained(run), step >= settings["steps"]),
        step=step,
        steps_wanted=settings["steps"],
        settings=settings,
        environment=environment,
        begin=begin,
        num_parameters=begin.get("num_parameters"),
        loader_workers=_loader_workers(story, begin),
        loader_note=_loader_note(story),
        exchange_note=_note_of(story, "reduce"),
        warnings=[*_warnings(launcher, records, long, begin), *damages],
        options=_with_known_price(options or Options(), environment),
        wall_seconds=story.wall_seconds,
        wall_how=_HOW_WALL_TIME,
        booked=booked_by_purpose(story.phases),
        phases=story.phases,
        attempts=story.attempts,
        num_steps=int(long.kept.total("num_steps")),
        num_units=long.kept.total("num_units"),
        step_times=_step_times(records[0], long, begin, run.is_observed),
        rows=long.kept,
        world=world,
        learning=_learning(run, story, long.kept, begin),
        rate=recorded_rate(
            settings, long.kept, story.of_kind("begin"), global_batch(settings, begin)
        ),
        data=_training_set(settings, long.kept, newest, begin),
        saving=_saving(settings, story, newest, long.kept),
        verdict=judge(times, int(long.kept.total("num_steps")), roles),
        roles=roles,
    )
    return checked(_as_observed(run, facts, long, records))


def _times(long: LongStory, records: list[RankRecord], roles: RolesUse | None) -> WorldTimes:
    if roles is not None and not roles.is_sync and len(long.kept):
        return times_out_of_step(long.kept, records, roles)
    return world_times(long.kept, only_trainers(records, roles), long.cutoffs)


def _with_known_price(options: Options, environment: dict[str, Any]) -> Options:
    """What `paceline cloud` has learned of such machines, where neither user nor hosts file say."""
    hosts = [h for h in environment.get("hosts") or [] if h.get("price_per_hour") is not None]
    machine = environment.get("machine_type")
    price = find_price(machine)
    if machine is None or price is None or hosts or options.price_per_hour is not None:
        return options
    source = f"{machine.removesuffix(' spot')} {price.in_words()}"
    return replace(options, price_per_hour=price.per_hour, price_source=source)


def _as_observed(
    run: RunDirectory, facts: Facts, long: LongStory, ranks: list[RankRecord]
) -> Facts:
    """What a script tells in other ways than a recipe does."""
    if not run.is_observed:
        return facts
    known = replace(
        facts,
        steps_wanted=None,
        learning=with_script_scores(facts.learning, long.story),
        rate=observed_rate(long.kept),
        data=observed_data(facts.begin, long.kept),
        saving=observed_saving(long.story, long.kept),
        warnings=[*facts.warnings, *observed_warnings([rank.events for rank in ranks])],
    )
    return replace(known, findings=find_mistakes(known, {one.rank: one.events for one in ranks}))


def _warnings(
    launcher: list[Event], records: list[RankRecord], long: LongStory, begin: dict[str, Any]
) -> list[str]:
    of_arithmetic = arithmetic_warnings(long.kept, long.story.of_kind("begin"))
    return [*warnings_of(launcher, records, long, begin), *of_arithmetic]


def _step_times(
    first: RankRecord, long: LongStory, begin: dict[str, Any], is_observed: bool
) -> StepTimes | None:
    # Version 0.1.0 timed the host there too, and so it is with scripts.
    by_device = "compute_capability" in begin and not is_observed
    return step_times(long.kept, _slowest_events(first, long), is_by_device=by_device)


def _world(
    run: RunDirectory,
    long: LongStory,
    records: list[RankRecord],
    told: tuple[dict[str, Any], dict[str, Any]],
    times: WorldTimes,
) -> World:
    begin, environment = told
    named = {host for host in times.hosts if host}
    first_steps = {event["attempt"]: event["step"] for event in long.story.of_kind("begin")}
    return World(
        size=int(begin.get("world_size") or environment.get("world_size") or 1),
        num_hosts=int(begin.get("num_hosts") or len(named) or 1),
        machines=frozenset(str(record.facts.get("machine", "")) for record in records) - {""},
        hosts=read_hosts(run, first_steps),
        times=times,
        cpu_seconds=sum(_cpu_seconds(record, records[0]) for record in records),
        step_cpu_seconds=sum(cpu_seconds_in_steps(record, records[0]) for record in records),
        own_cpu_share=own_cpu_share(records, environment),
        peak_flops=_sum_of_known([record.facts.get("peak_flops") for record in records]),
        gradient_bytes=_reduced_per_step(long.kept, begin),
        gradients_ready=_gradients_ready(long.story),
    )


def _gradients_ready(story: Story) -> tuple[tuple[float, float], ...]:
    told = story.of_kind("gradients")
    if not told:
        return ()
    sizes, shares = told[-1].get("ready_bytes") or [], told[-1].get("ready_shares") or []
    is_likely = len(sizes) == len(shares) and all(0 <= share <= 1 for share in shares)
    return tuple(zip(sizes, shares, strict=True)) if is_likely and sum(sizes) > 0 else ()


def _reduced_per_step(rows: StepColumns, begin: dict[str, Any]) -> float | None:
    """Bytes that each process gave to the all-reduce of gradients."""
    known = ~np.isnan(rows["reduced_bytes"])
    num_steps = float(rows["num_steps"][known].sum())
    if num_steps:
        return float(rows["reduced_bytes"][known].sum()) / num_steps
    told = begin.get("gradient_bytes")
    return float(told) if isinstance(told, int | float) else None


def _learning(
    run: RunDirectory, story: Story, rows: StepColumns, begin: dict[str, Any]
) -> Learning:
    scores = [_score(event) for event in story.of_kind("score")]
    known = np.isfinite(rows["loss"])
    broken = rows["step"][~known]
    last_known = np.flatnonzero(known).max(initial=-1)
    is_lost = len(rows) > 0 and not known[-1]
    return Learning(
        loss=Points(rows["step"], rows["loss"]),
        loss_by_step=_loss_by_step(rows),
        not_finite_from=int(rows["step"][last_known + 1]) if is_lost else None,
        not_finite_at=int(broken[0]) if len(broken) else None,
        scores=[score for score in scores if score.split != "train"],
        train_scores=[score for score in scores if score.split == "train"],
        evaluations=[_score(event) for event in read_events(run.evaluation_events)],
        best_by=str(begin.get("best_by", "")),
        stopped_because=_stopped_because(story),
    )


def _loss_by_step(rows: StepColumns) -> Points:
    """Nothing unless every line tells it: half a curve of steps, half of means, misleads."""
    known = ~np.isnan(rows.step_losses)
    num_known = int(known.sum())
    is_listed = num_known == rows.total("num_steps")
    is_whole = num_known and is_listed and np.isfinite(rows["loss"]).all() and known.all()
    return Points(rows.step_numbers(), rows.step_losses) if is_whole else Points()


def _stopped_because(story: Story) -> str:
    last = max((attempt.number for attempt in story.attempts), default=0)
    for event in story.of_kind("warning"):
        if event["attempt"] == last and str(event.get("text")).startswith(_GUARD_WORDS):
            return str(event["text"])
    return ""


def _loader_workers(story: Story, begin: dict[str, Any]) -> int | None:
    """An attempt begins with a guess; what it found is told later."""
    last = max((attempt.number for attempt in story.attempts), default=0)
    found = [
        event.get("loader_workers") for event in story.of_kind("input") if event["attempt"] == last
    ]
    known = [number for number in [begin.get("loader_workers"), *found] if number is not None]
    return int(known[-1]) if known else None


def _loader_note(story: Story) -> str:
    return _note_of(story, "input")


def _note_of(story: Story, kind: str) -> str:
    """The last of its kind."""
    told = story.of_kind(kind)
    return str(told[-1].get("text") or "") if told else ""


def global_batch(settings: dict[str, Any], begin: dict[str, Any]) -> int | None:
    batch = settings.get("batch") or {}
    world_size = begin.get("world_size") or 0
    once = batch.get("global") or (batch.get("per_device") or 0) * world_size or None
    accumulated = (settings.get("reduce") or {}).get("accumulate")
    times = accumulated if isinstance(accumulated, int) else 1
    return once * times if once else None


def _training_set(
    settings: dict[str, Any],
    rows: StepColumns,
    newest: CheckpointContents | None,
    begin: dict[str, Any],
) -> TrainingSet:
    column = rows["epochs"]
    last = float(column[-1]) if len(column) else math.nan
    return TrainingSet(
        card=data_card(settings.get("data"), newest),
        named=(str(settings.get("data")),),
        epochs=last if math.isfinite(last) else None,
        global_batch=global_batch(settings, begin),
    )


def _saving(
    settings: dict[str, Any], story: Story, newest: CheckpointContents | None, rows: StepColumns
) -> Saving:
    every = (settings.get("checkpoint") or {}).get("every_steps")
    return Saving(newest, checkpoint_cost(story, rows), every if isinstance(every, int) else None)


def _slowest_events(first: RankRecord, long: LongStory) -> list[Event]:
    """Without what was lost and done again."""
    return [slow for slow in first.slowest if slow["step"] <= long.cutoffs[slow["attempt"]]]


def _settings(run: RunDirectory) -> dict[str, Any]:
    """The recipe as it is, except that what judgement looks into is sure to be there."""
    settings = _with_sections(settings_of_run(run), _SECTIONS)
    steps = settings.get("steps")
    return {**settings, "steps": steps if isinstance(steps, int) else 0}


def _with_sections(content: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    wrong = [name for name in names if not isinstance(content.get(name, {}), dict)]
    return {name: value for name, value in content.items() if name not in wrong}


def _read_ranks(run: RunDirectory) -> list[RankRecord]:
    """The first that is there in full; the others as far as who waits for whom asks for."""
    numbers = rank_numbers(run)
    if not numbers:
        return [read_rank(run, 0)]
    share = _BYTES_OF_OTHER_RANKS // max(len(numbers) - 1, 1)
    others = [read_rank(run, rank, most_bytes=share) for rank in numbers[1:]]
    return [read_rank(run, numbers[0]), *others]


def _begin(story: Story) -> dict[str, Any]:
    """What the last attempt said of itself, without what cannot be."""
    begins = story.of_kind("begin")
    return {k: v for k, v in begins[-1].items() if _is_likely(k, v)} if begins else {}


def _is_likely(name: str, value: Any) -> bool:
    if name in ("unit", "best_by", "device", "host"):
        return isinstance(value, str)
    if name in ("world_size", "num_hosts", "num_parameters", "gradient_bytes", "loader_workers"):
        return isinstance(value, int) and value >= 0
    if name in ("flops_per_unit", "peak_flops"):
        return isinstance(value, int | float) and math.isfinite(value) and value > 0
    return True


def _step(story: Story) -> int:
    begins, steps = story.of_kind("begin"), story.of_kind("steps")
    return int(max([event["step"] for event in [*begins[-1:], *steps]], default=0))


def _cpu_seconds(record: RankRecord, first: RankRecord) -> float:
    """CPU time of one process over all attempts, lost work included."""
    others = sum(event.get("cpu_seconds") or 0.0 for event in record.events)
    return float(others + cpu_seconds_in_steps(record, first))


def _sum_of_known(values: list[Any]) -> float | None:
    known = [float(value) for value in values if _is_likely("peak_flops", value)]
    return sum(known) * len(values) / len(known) if known else None


def _reason(story: Story, is_running: bool | None, is_complete: bool) -> str:
    """How the last attempt ended: in its own word, else by the launcher's, else by its lock."""
    last = max(story.attempts, key=lambda attempt: attempt.number, default=None)
    number, code = (last.number, last.exit_code) if last else (0, None)
    ends = [event["reason"] for event in story.of_kind("end") if event["attempt"] == number]
    is_broken = code and ends[-1:] == ["finished"]  # a script may say so and exit with a code
    if ends and ends[-1] != "failed" and not is_broken:
        return str(ends[-1])
    if code is not None:
        ended = "finished" if is_complete else "ended"
        return f"failed (exit code {code})" if code else ended
    if ends:
        return "failed"
    if is_running is None:
        return "finished" if is_complete else "running or killed"
    return "running" if is_running else "killed"


def _score(event: Event) -> Score:
    values = event.get("scores")
    numbers = values if isinstance(values, dict) else {}
    return Score(
        int(event.get("step", 0)),
        str(event.get("split", "?")),
        {name: float(v) for name, v in numbers.items() if isinstance(v, int | float)},
        str(event.get("signature", "")),
    )
