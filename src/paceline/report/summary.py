"""The figures of a run, computed from its directory alone. Pure data: no words, no layout."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from paceline.errors import UserError
from paceline.recipe import read_settings
from paceline.record import checkpoints as stored
from paceline.record.reader import Event, Story, read_events, read_story
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
class Summary:
    run: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    facts: dict[str, Any]
    story: Story
    step: int
    reason: str
    step_times: StepTimes | None
    scores: list[Score]
    evaluations: list[Score]
    checkpoint: CheckpointContents | None
    checkpoint_cost: CheckpointCost
    warnings: list[str]


def summarise(path: Path) -> Summary:
    run = RunDirectory(path)
    story = read_story(run)
    begins = story.of_kind("begin")
    steps = story.of_kind("steps")
    step = max([event["step"] for event in [*begins, *steps]], default=0)
    return Summary(
        run=path,
        settings=read_settings(run.recipe),
        environment=_read_json(run.environment),
        facts=begins[-1] if begins else {},
        story=story,
        step=step,
        reason=_reason(story),
        step_times=step_times(steps),
        scores=[_score(event) for event in story.of_kind("score")],
        evaluations=[_score(event) for event in read_events(run.evaluation_events)],
        checkpoint=newest_contents(run),
        checkpoint_cost=checkpoint_cost(story),
        warnings=[event["text"] for event in story.of_kind("warning")],
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _reason(story: Story) -> str:
    """How the last attempt ended: its own word, or 'running or killed' if it left none."""
    last = max((attempt.number for attempt in story.attempts), default=0)
    ends = [event for event in story.of_kind("end") if event["attempt"] == last]
    return str(ends[-1]["reason"]) if ends else "running or killed"


def step_times(steps: list[Event]) -> StepTimes | None:
    seconds = [second for event in steps for second in event.get("step_seconds", [])]
    if not seconds:
        return None
    ordered = quantiles(seconds, n=20) if len(seconds) > 1 else [seconds[0]] * 19
    num_units = sum(event["num_units"] for event in steps)
    return StepTimes(
        len(seconds), median(seconds), ordered[0], ordered[-1], num_units / max(sum(seconds), 1e-9)
    )


def _score(event: Event) -> Score:
    return Score(event["step"], event["split"], event["scores"], event.get("signature", ""))


def checkpoint_cost(story: Story) -> CheckpointCost:
    saves = story.of_kind("checkpoint")
    failed = [e for e in story.of_kind("warning") if "not saved" in e["text"]]
    return CheckpointCost(
        num_saves=len(saves),
        num_failed=len(failed),
        stall_seconds=story.phases.get(CHECKPOINT, 0.0),
        background_seconds=sum(event["write_seconds"] for event in saves),
    )


def newest_contents(run: RunDirectory) -> CheckpointContents | None:
    found = stored.all_checkpoints(run.checkpoints)
    return contents(found[-1]) if found else None


def contents(checkpoint: Path) -> CheckpointContents:
    """What a checkpoint holds, by bytes, from its manifest and the headers of its files."""
    manifest = stored.read_manifest(checkpoint)
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    try:
        tensors = stored.stored_tensors(checkpoint / stored.WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{checkpoint / stored.WEIGHTS} cannot be read: {error}",
            "an older checkpoint may be whole: see the run's checkpoints directory",
        ) from error
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
