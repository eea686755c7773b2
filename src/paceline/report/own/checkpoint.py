"""What a checkpoint holds, by bytes, and what saving cost. Figures only; no words, no layout."""

from pathlib import Path

import numpy as np

from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.record.columns import StepColumns
from paceline.record.events import Event
from paceline.record.schema import CHECKPOINT, RunDirectory
from paceline.record.story import Story
from paceline.report.facts.facts import CheckpointContents, CheckpointCost, Save
from paceline.report.facts.trend import Numbers

_LEAST_APART = 5
"""Steps beside which nothing was written, before the others are compared with them."""

_PARTS = {
    stored.WEIGHTS: "weights",
    stored.AVERAGE: "averaged weights",
    stored.OPTIMIZER: "optimizer state",
    stored.EXCHANGE: "what was exchanged",
}
_OF_PROCESSES = "own state of processes"


def checkpoint_cost(story: Story, rows: StepColumns) -> CheckpointCost:
    saves = story.of_kind("checkpoint")
    failed = [event for event in story.of_kind("warning") if event.get("failed_save")]
    ends = story.of_kind("end")
    return CheckpointCost(
        num_saves=len(saves),
        num_failed=len(failed),
        stall_seconds=story.phases.get(CHECKPOINT, 0.0),
        background_seconds=sum(event.get("write_seconds", 0.0) for event in saves),
        end_seconds=sum(event.get("phases", {}).get(CHECKPOINT, 0.0) for event in ends),
        saves=_saves_on_the_way(saves, rows),
    )


def _saves_on_the_way(saves: list[Event], rows: StepColumns) -> tuple[Save, ...]:
    """Those after which the same attempt did a step, so that they took something from it."""
    steps, seconds = rows.step_numbers(), rows.step_seconds.astype(np.float64)
    attempts = np.repeat(rows["attempt"], rows["num_step_seconds"].astype(int))
    told: list[tuple[Event, slice]] = []
    is_apart = np.ones(len(seconds), bool)
    for save in saves:
        first = int(np.searchsorted(steps, save["step"], side="right"))
        last = int(np.searchsorted(steps, save.get("until_step", 0), side="right"))
        goes_on = first < len(steps) and attempts[first] == save["attempt"]
        if goes_on and "copy_seconds" in save:
            told.append((save, slice(first, last)))
            is_apart[first:last] = False
    usual = float(seconds[is_apart].mean()) if is_apart.sum() >= _LEAST_APART else None
    return tuple(_save(save, seconds[beside], usual) for save, beside in told)


def _save(event: Event, beside: Numbers, usual: float | None) -> Save:
    """`beside` are the seconds of the steps that ran while it was written."""
    written = event.get("write_seconds", 0.0)
    return Save(
        copy_seconds=event["copy_seconds"],
        wait_seconds=event.get("wait_seconds", 0.0),
        write_seconds=written,
        slowed_seconds=_slowed(beside, usual, written),
    )


def _slowed(beside: Numbers, usual: float | None, write_seconds: float) -> float | None:
    """In all the steps beside a write. It cannot be more than the write took: what steps vary by
    besides is not its doing."""
    if usual is None:
        return None
    return float(np.clip((beside - usual).sum(), -write_seconds, write_seconds))


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
    sizes = {name: int(entry["bytes"]) for name, entry in manifest["files"].items()}
    sizes[stored.MANIFEST] = (checkpoint / stored.MANIFEST).stat().st_size
    return CheckpointContents(
        path=checkpoint,
        step=stored.step_of(checkpoint),
        bytes_by_part=_by_part(sizes),
        bytes_by_file=sizes,
        weights_sha256=manifest["weights_sha256"],
        num_weights=sum(_num_elements(tensor.shape) for tensor in tensors),
    )


def _by_part(sizes: dict[str, int]) -> dict[str, int]:
    parts = {part: sizes.get(name, 0) for name, part in _PARTS.items()}
    own = {name for name in sizes if stored.is_own_state(name)}
    parts[_OF_PROCESSES] = sum(sizes[name] for name in own)
    rest = sizes.keys() - own - _PARTS.keys()
    parts["the rest"] = sum(sizes[name] for name in rest)
    return {name: size for name, size in parts.items() if size}


def _num_elements(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
