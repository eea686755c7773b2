"""What is known of a run only because a script was watched: its scores, its loader, its saves."""

from pathlib import Path
from typing import Any

from paceline.record.columns import StepColumns
from paceline.record.events import Event
from paceline.record.story import Story
from paceline.report.facts.facts import (
    Learning,
    Rate,
    SavedFiles,
    Saving,
    Score,
    TrainingSet,
)
from paceline.report.foreign.tags import by_importance, meaning_of
from paceline.report.own.checkpoint import checkpoint_cost
from paceline.report.own.rate import logged_rates

_JUDGED = ("validation", "test")


def observed_rate(rows: StepColumns) -> Rate:
    """No formula is known; what the optimizer used is."""
    return Rate(logged=logged_rates(rows))


def with_script_scores(learning: Learning, story: Story) -> Learning:
    """Scores under the script's own names; a validation loss also as what it is, `loss`."""
    logged = [event for event in story.of_kind("score") if isinstance(event.get("scores"), dict)]
    judged = [_judged(event) for event in logged if event.get("split") in _JUDGED]
    progress = [_as_is(event) for event in logged if event.get("split") not in _JUDGED]
    names = {name for score in judged for name in score.values if _is_score(name)}
    return Learning(
        loss=learning.loss,
        loss_by_step=learning.loss_by_step,
        not_finite_from=learning.not_finite_from,
        not_finite_at=learning.not_finite_at,
        scores=judged,
        progress_scores=progress,
        best_by=_most_important(names),
    )


def _as_is(event: Event) -> Score:
    values = {str(name): float(value) for name, value in event["scores"].items()}
    return Score(int(event.get("step", 0)), str(event.get("split", "?")), values)


def _judged(event: Event) -> Score:
    """The one loss among the names is the validation loss, whatever it is called."""
    score = _as_is(event)
    losses = [name for name in score.values if _is_loss(name)]
    if len(losses) != 1 or "loss" in score.values:
        return score
    return Score(score.step, score.split, {"loss": score.values[losses[0]], **score.values})


def _is_loss(name: str) -> bool:
    found = meaning_of(name)
    return found is not None and found.kind == "loss"


def _is_score(name: str) -> bool:
    """That is the better the higher it is."""
    found = meaning_of(name)
    return found is not None and found.kind == "score"


def _most_important(names: set[str]) -> str:
    known = {meaning.name: name for name in sorted(names) if (meaning := meaning_of(name))}
    order = by_importance(known)
    return known[order[0]] if order else ""


def observed_data(begin: dict[str, Any], rows: StepColumns) -> TrainingSet:
    loader = loader_facts(begin)
    column = rows["epochs"]
    epochs = float(column[-1]) if len(column) and column[-1] == column[-1] else None
    per_device, size = loader.get("batch_size"), int(begin.get("world_size") or 1)
    batches = loader.get("num_batches")
    return TrainingSet(
        epochs=epochs,
        steps_per_epoch=batches if isinstance(batches, int) else None,
        global_batch=per_device * size if isinstance(per_device, int) else None,
        batch_how="the script's DataLoader",
    )


def loader_facts(begin: dict[str, Any]) -> dict[str, Any]:
    found = begin.get("loader")
    return found if isinstance(found, dict) else {}


def observed_saving(story: Story, rows: StepColumns) -> Saving:
    saves = story.of_kind("checkpoint")
    newest = None
    if saves:
        last = saves[-1]
        newest = SavedFiles(
            Path(str(last.get("path", ""))),
            int(last["step"]),
            int(last.get("num_bytes") or 0),
            int(last.get("num_files") or 1),
        )
    return Saving(cost=checkpoint_cost(story, rows), files=newest)


def observed_warnings(records_events: list[list[Event]]) -> list[str]:
    """What was not measured, and hooks that could not be set: each once."""
    found: dict[str, None] = {}
    for events in records_events:
        for event in events:
            if event["kind"] == "note" and str(event.get("text", "")).startswith("not observed"):
                found[str(event["text"])] = None
            for text in event.get("unmeasured") or []:
                found[f"not measured: {text}"] = None
    return list(found)
