"""The figures of a run, computed from its directory alone. Pure data: no words, no layout."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.recipe import read_settings
from paceline.record import checkpoints as stored
from paceline.record.reader import (
    Event,
    Story,
    is_being_trained,
    read_events,
    read_story,
    total_cpu_seconds,
)
from paceline.record.schema import CHECKPOINT, RunDirectory


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


@dataclass(frozen=True)
class Score:
    step: int
    split: str
    values: dict[str, float]
    signature: str


@dataclass(frozen=True)
class CheckpointContents:
    path: Path
    step: int
    bytes_by_part: dict[str, int]
    weights_sha256: str
    num_weights: int

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_part.values())


@dataclass(frozen=True)
class CheckpointCost:
    num_saves: int
    num_failed: int
    stall_seconds: float
    background_seconds: float


@dataclass(frozen=True)
class DataCard:
    """The prepared data as it is now, which may not be what the run was trained on."""

    directory: Path
    noun: str
    """What is counted, e.g. 'pictures'."""
    num_by_split: dict[str, int]
    total_bytes: float
    is_stand_in: bool
    is_other: bool
    """Its fingerprint is not the one that the run was trained with."""


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
    evaluations: list[Score]
    checkpoint: CheckpointContents | None
    checkpoint_cost: CheckpointCost
    data: DataCard | None
    warnings: list[str]


def summarise(path: Path) -> Summary:
    run = RunDirectory(path)
    story = read_story(run)
    begins = story.of_kind("begin")
    steps = story.of_kind("steps")
    step = max([event["step"] for event in [*begins[-1:], *steps]], default=0)
    settings = read_settings(run.recipe)
    held, damages = newest_contents(run)
    return Summary(
        run=path,
        settings=settings,
        environment=_read_json(run.environment),
        facts=begins[-1] if begins else {},
        story=story,
        step=step,
        reason=_reason(story, is_being_trained(run), step >= settings.get("steps", 0)),
        cpu_seconds=total_cpu_seconds(run),
        step_times=step_times(steps),
        scores=[_score(event) for event in story.of_kind("score")],
        evaluations=[_score(event) for event in read_events(run.evaluation_events)],
        checkpoint=held,
        checkpoint_cost=checkpoint_cost(story),
        data=data_card(settings.get("data"), held),
        warnings=[*_told_warnings(story), *damages],
    )


def _told_warnings(story: Story) -> list[str]:
    warnings = [str(event["text"]) for event in story.of_kind("warning")]
    num_lost = sum(event.get("num_lost", 0) for event in [*story.events, *story.lost])
    if num_lost:
        warnings.append(f"the disk was full: events that could not be written: {num_lost:,}")
    return warnings


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


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


def step_times(steps: list[Event]) -> StepTimes | None:
    seconds = [second for event in steps for second in event.get("step_seconds", [])]
    if not seconds:
        return None
    # "inclusive", because the usual method guesses beyond few values, even below zero.
    ordered = (
        quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 19
    )
    num_units = sum(event["num_units"] for event in steps)
    return StepTimes(
        len(seconds), median(seconds), ordered[0], ordered[-1], num_units / max(sum(seconds), 1e-9)
    )


def _score(event: Event) -> Score:
    return Score(event["step"], event["split"], event["scores"], event.get("signature", ""))


def checkpoint_cost(story: Story) -> CheckpointCost:
    saves = story.of_kind("checkpoint")
    failed = [event for event in story.of_kind("warning") if event.get("failed_save")]
    return CheckpointCost(
        num_saves=len(saves),
        num_failed=len(failed),
        stall_seconds=story.phases.get(CHECKPOINT, 0.0),
        background_seconds=sum(event["write_seconds"] for event in saves),
    )


def newest_contents(run: RunDirectory) -> tuple[CheckpointContents | None, list[str]]:
    """The newest checkpoint whose files look whole, and what is wrong with newer ones."""
    problems: list[str] = []
    for checkpoint in reversed(stored.all_checkpoints(run.checkpoints)):
        try:
            return contents(checkpoint), problems
        except UserError as error:
            problems.append(f"damaged checkpoint: {error.what}")
    return None, problems


def contents(checkpoint: Path) -> CheckpointContents:
    """What a checkpoint holds, by bytes, from its manifest and the headers of its files.

    Damage that shows in sizes and headers is a UserError; contents are not hashed, which takes
    seconds for a big model.
    """
    manifest = stored.read_manifest(checkpoint)
    older = "an older checkpoint may be whole: see the run's checkpoints directory"
    try:
        for name, entry in manifest["files"].items():
            if problem := stored.size_damage(checkpoint / name, entry):
                raise UserError(problem, older)
        tensors = stored.stored_tensors(checkpoint / stored.WEIGHTS)
    except (OSError, ValueError) as error:
        raise UserError(f"{checkpoint / stored.WEIGHTS} cannot be read: {error}", older) from error
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    parts = {
        "weights": sizes.pop(stored.WEIGHTS, 0),
        "averaged weights": sizes.pop(stored.AVERAGE, 0),
        "optimizer state": sizes.pop(stored.OPTIMIZER, 0),
        "the rest": sum(sizes.values()) + (checkpoint / stored.MANIFEST).stat().st_size,
    }
    return CheckpointContents(
        path=checkpoint,
        step=stored.step_of(checkpoint),
        bytes_by_part={name: size for name, size in parts.items() if size},
        weights_sha256=manifest["weights_sha256"],
        num_weights=sum(_num_elements(tensor.shape) for tensor in tensors),
    )


def _num_elements(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def data_card(named: Any, held: CheckpointContents | None) -> DataCard | None:
    """What the data directory says of itself, where it is still to be found."""
    try:
        directory = data_directory(str(named))
        card = read_card(directory)
        splits = [(name, _num_samples(split)) for name, split in card["splits"].items()]
        return DataCard(
            directory=directory,
            noun=splits[0][1][0],
            num_by_split={name: count for name, (_, count) in splits},
            total_bytes=1e6 * float(card["total_mb"]),
            is_stand_in=bool(card.get("stand_in")),
            is_other=_trained_with(held) not in (None, card.get("fingerprint")),
        )
    except (UserError, OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError):
        return None  # cards belong to workloads, and a report does not fail over one


def _num_samples(split: dict[str, Any]) -> tuple[str, int]:
    """Workloads name what they count: `num_pictures`, `num_pairs`. It comes first."""
    counts = [(name, count) for name, count in split.items() if name.startswith("num_")]
    name, count = counts[0]
    return name.removeprefix("num_").replace("_", " "), int(count)


def _trained_with(held: CheckpointContents | None) -> str | None:
    progress = _read_json(held.path / stored.STATE).get("progress") if held else None
    found = progress.get("data_fingerprint") if isinstance(progress, dict) else None
    return str(found) if found else None
