"""The figures of a run, computed from its directory alone. Pure data: no words, no layout."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from paceline.recipe import read_settings
from paceline.record.columns import RankRecord, StepColumns, rank_numbers, read_rank
from paceline.record.directory import is_being_trained, read_environment, require_run
from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory
from paceline.record.story import LongStory, Story, join_story
from paceline.report.checkpoint import (
    CheckpointContents,
    CheckpointCost,
    checkpoint_cost,
    newest_contents,
)
from paceline.report.data import DataCard, data_card
from paceline.report.hosts import HostUse, read_hosts
from paceline.report.verdict import Verdict, judge
from paceline.report.world_times import WorldTimes, world_times
from paceline.units import format_seconds

_BYTES_OF_OTHER_RANKS = 8 << 20
"""Read of the files of all ranks but the first, in all; what is more is read in windows."""

_SECTIONS = ("batch", "schedule", "evaluate", "checkpoint", "target", "input")


@dataclass(frozen=True)
class Options:
    """What a user adds to what the run knows of itself."""

    link_bits_per_second: float | None = None
    price_per_hour: float | None = None
    """Of one host."""


@dataclass(frozen=True)
class StepTimes:
    num_steps: int
    median_seconds: float
    low_seconds: float
    """5 % of steps are faster"""
    high_seconds: float
    """5 % of steps are slower"""
    units_per_second: float
    """of the whole world, over training proper"""
    slowest_seconds: float = math.nan


@dataclass(frozen=True)
class Score:
    step: int
    split: str
    values: dict[str, float]
    signature: str


@dataclass(frozen=True)
class Summary:
    run: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    facts: dict[str, Any]
    story: Story
    step: int
    reason: str
    cpu_seconds: float
    step_times: StepTimes | None
    scores: list[Score]
    """On validation data, while training."""
    train_scores: list[Score]
    """The same measure on a part of the training data."""
    evaluations: list[Score]
    checkpoint: CheckpointContents | None
    checkpoint_cost: CheckpointCost
    data: DataCard | None
    curves: StepColumns
    lost: StepColumns
    slowest: list[Event]
    times: WorldTimes
    verdict: Verdict
    hosts: list[HostUse]
    peak_flops: float | None
    """Of all processes together."""
    warnings: list[str]
    options: Options = field(default_factory=Options)

    @property
    def best_by(self) -> str:
        return str(self.facts.get("best_by", ""))

    @property
    def world_size(self) -> int:
        return int(self.facts.get("world_size") or self.environment.get("world_size") or 1)

    @property
    def num_hosts(self) -> int:
        named = {host for host in self.times.hosts if host}
        return int(self.facts.get("num_hosts") or len(named) or 1)


def summarise(path: Path, options: Options | None = None) -> Summary:
    run = require_run(path)
    settings = _settings(run)
    records = _read_ranks(run)
    launcher = read_events(run.launcher_events)
    long = join_story(records[0], launcher)
    story, facts = long.story, _facts(long.story)
    times = world_times(long.kept, records, long.cutoffs)
    held, damages = newest_contents(run)
    step = _step(story)
    scores = [_score(event) for event in story.of_kind("score")]
    return Summary(
        run=path,
        settings=settings,
        environment=read_environment(run),
        facts=facts,
        story=story,
        step=step,
        reason=_reason(story, is_being_trained(run), step >= settings.get("steps", 0)),
        cpu_seconds=sum(_cpu_seconds(record, records[0]) for record in records),
        step_times=step_times(long.kept),
        scores=[score for score in scores if score.split != "train"],
        train_scores=[score for score in scores if score.split == "train"],
        evaluations=[_score(event) for event in read_events(run.evaluation_events)],
        checkpoint=held,
        checkpoint_cost=checkpoint_cost(story),
        data=data_card(settings.get("data"), held),
        curves=long.kept,
        lost=long.lost,
        slowest=[s for s in records[0].slowest if s["step"] <= long.cutoffs[s["attempt"]]],
        times=times,
        verdict=judge(times, int(long.kept.total("num_steps"))),
        hosts=read_hosts(run, {e["attempt"]: e["step"] for e in story.of_kind("begin")}),
        peak_flops=_sum_of_known([record.facts.get("peak_flops") for record in records]),
        warnings=[
            *_told_warnings(story),
            *_failures(launcher),
            *_odd(records, long, facts),
            *damages,
        ],
        options=options or Options(),
    )


def _settings(run: RunDirectory) -> dict[str, Any]:
    """The recipe as it is, except that what judgement looks into is sure to be there."""
    settings = _with_sections(read_settings(run.recipe), _SECTIONS)
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


def _facts(story: Story) -> dict[str, Any]:
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
    """Processor time of one process over all attempts, lost work included."""
    others = sum(event.get("cpu_seconds") or 0.0 for event in record.events)
    in_steps = record.steps.total("cpu_seconds")
    num_read = record.steps.total("num_steps")
    if record.share_read < 1 and num_read:
        in_steps *= first.steps.total("num_steps") / num_read
    return float(others + in_steps)


def _sum_of_known(values: list[Any]) -> float | None:
    known = [float(value) for value in values if _is_likely("peak_flops", value)]
    return sum(known) * len(values) / len(known) if known else None


def _told_warnings(story: Story) -> list[str]:
    warnings = [str(event.get("text", "?")) for event in story.of_kind("warning")]
    num_lost = sum(event.get("num_lost", 0) for event in [*story.events, *story.lost])
    if num_lost:
        warnings.append(f"the disk was full: events that could not be written: {num_lost:,}")
    return warnings


def _failures(launcher: list[Event]) -> list[str]:
    """Why attempts failed, as the launcher of several hosts saw it."""
    return [
        f"attempt {event['attempt']} ended: {event['text']}"
        for event in launcher
        if event["kind"] == "exit" and event.get("code") and event.get("text")
    ]


def _odd(records: list[RankRecord], long: LongStory, facts: dict[str, Any]) -> list[str]:
    """What is strange about the record itself, so that its figures are read with care."""
    found = []
    there = {record.rank for record in records}
    missing = [rank for rank in range(int(facts.get("world_size") or 0)) if rank not in there]
    if missing and there and facts:
        named = ", ".join(str(rank) for rank in missing[:8])
        found.append(
            f"no events of {'rank' if len(missing) == 1 else 'ranks'} {named}: "
            "what they did and who waited for them is not known"
        )
    for jump in long.jumps[:3]:
        way = "forward" if jump.seconds > 0 else "back"
        found.append(
            f"before step {jump.step:,} the clock on the wall went "
            f"{format_seconds(abs(jump.seconds))} "
            f"{way} at once (it was set, or the machine slept); that is not counted"
        )
    return found + _overlaps(long.story)


def _overlaps(story: Story) -> list[str]:
    spans = [(a.started, a.ended, a.number) for a in story.attempts if a.started is not None]
    spans.sort()
    return [
        f"attempts {one} and {other} ran at the same time for "
        f"{format_seconds(min(ended, other_ended) - begun)}: both are counted"
        for (_, ended, one), (begun, other_ended, other) in pairwise(spans)
        if min(ended, other_ended) - begun > 1
    ]


def _reason(story: Story, is_running: bool | None, is_complete: bool) -> str:
    """How the last attempt ended: in its own word, else by the launcher's, else by its lock."""
    last = max(story.attempts, key=lambda attempt: attempt.number, default=None)
    number, code = (last.number, last.exit_code) if last else (0, None)
    ends = [event["reason"] for event in story.of_kind("end") if event["attempt"] == number]
    if ends and ends[-1] != "failed":
        return str(ends[-1])
    if code is not None:
        ended = "finished" if is_complete else "ended"
        return f"failed (exit code {code})" if code else ended
    if ends:
        return "failed"
    if is_running is None:
        return "finished" if is_complete else "running or killed"
    return "running" if is_running else "killed"


def step_times(steps: StepColumns) -> StepTimes | None:
    seconds = steps.step_seconds
    if not len(seconds):
        return None
    low, middle, high = (float(value) for value in np.percentile(seconds, [5, 50, 95]))
    units = steps.total("num_units") / max(float(seconds.sum(dtype=np.float64)), 1e-9)
    return StepTimes(len(seconds), middle, low, high, units, float(seconds.max()))


def _score(event: Event) -> Score:
    values = event.get("scores")
    numbers = values if isinstance(values, dict) else {}
    return Score(
        int(event.get("step", 0)),
        str(event.get("split", "?")),
        {name: float(v) for name, v in numbers.items() if isinstance(v, int | float)},
        str(event.get("signature", "")),
    )
