"""The answer about validation against training: does it overfit, and which checkpoint is best."""

import math
from typing import Any

from paceline.record import checkpoints as stored
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.script import LOG_VALIDATION
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import (
    Gap,
    Turn,
    best_score,
    find_gap,
    find_turn,
    is_lower_better,
    measures,
    series,
)
from paceline.report.facts.trend import LEAST_POINTS

_HOW = "loss on validation data and on a fixed part of the training data, both in evaluation mode"
_HOW_APART = "validation against what was recorded while training"
_LEARNED_BY_HEART = 0.1
"""Of the validation loss: a gap that is worth a word though it does no harm."""


def overfitting(facts: Facts) -> Answer:
    best, told = best_checkpoint(facts)
    gap = find_gap(facts.learning)
    if gap is None:
        return _by_score(facts, best, told)
    sentence = _same_measure(gap) if gap.is_same_measure else _other_measure(facts, gap)
    return Answer(
        "overfitting",
        QUESTIONS["overfitting"],
        sentence + told,
        _gap_figures(gap) | best,
        _HOW if gap.is_same_measure else _HOW_APART,
        "" if gap.is_same_measure else _missing(facts),
        _remedy(facts, gap, best),
    )


def _gap_figures(gap: Gap) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "is_overfitting": gap.is_overfitting,
        "parts_at_step": gap.turn.step,
        "validation_loss": gap.turn.last,
        "train_loss": gap.train_loss if _is_known(gap.train_loss) else None,
        "lowest_validation_loss": gap.turn.best,
    }
    if gap.is_same_measure:
        figures |= {"gap": gap.gap, "gap_before": gap.gap_before}
    figures["rise_since"] = gap.turn.worse_by
    figures["train_fall_since"] = gap.train_fall if _is_known(gap.train_fall) else None
    return figures


def _same_measure(gap: Gap) -> str:
    now = (
        f"validation loss is {gap.turn.last:.4f}, training loss measured the same way "
        f"{gap.train_loss:.4f}"
    )
    if gap.is_overfitting:
        return (
            f"Yes: since step {gap.turn.step:,} validation loss rose by {gap.turn.worse_by:.4f} "
            f"while training loss fell by {gap.train_fall:.4f}; at the end {now}."
        )
    if gap.gap > max(2 * gap.gap_before, _LEARNED_BY_HEART * gap.turn.last):
        return (
            f"Not yet: it begins to memorise the training data ({now}, a gap of {gap.gap:.4f}), "
            "but validation loss has not begun to rise."
        )
    return f"No: {now}, and validation loss has not begun to rise."


def _other_measure(facts: Facts, gap: Gap) -> str:
    """The loss as it trains is another measure: where it goes counts, not the gap."""
    turn = gap.turn
    beside = f" (training loss then: {gap.train_loss:.4g})" if _is_known(gap.train_loss) else ""
    if gap.is_overfitting:
        return (
            f"Yes: the validation loss was best at step {turn.step:,} ({turn.best:.4g}) and rose "
            f"to {turn.last:.4g} at step {turn.last_step:,}{beside}; use a checkpoint near step "
            f"{turn.step:,}."
        )
    num_points = len(series(facts.learning.scores, "loss"))
    few = " These are few points." if num_points < LEAST_POINTS else ""
    return (
        f"No sign of it: the last validation loss, {turn.last:.4g} at step {turn.last_step:,}, is "
        f"{_compared(turn)}{beside}.{few}"
    )


def _is_known(value: float) -> bool:
    return not math.isnan(value)


def _compared(turn: Turn) -> str:
    if turn.step == turn.last_step:
        return "the best"
    if turn.has_turned:
        return f"above the best ({turn.best:.4g} at step {turn.step:,}), but so is training loss"
    return "as good as the best"


def _by_score(facts: Facts, best: dict[str, Any], told: str) -> Answer:
    """Without two validation losses, a score that falls is what is left to go by."""
    scores = facts.learning.scores
    name = next((name for name in measures(scores) if len(series(scores, name)) > 1), None)
    if name is None:
        return _unknown(facts, best, told)
    turn = find_turn(series(scores, name), lower_is_better=_is_lower_better(facts, name))
    first = series(scores, name)
    figures: dict[str, Any] = {
        "measure": name,
        "best_step": turn.step,
        "best": turn.best,
        "first": float(first.values[0]),
        "last": turn.last,
    }
    beside = ""
    progress = series(facts.learning.progress_scores, name)
    if len(progress):
        then = figures["training_score_then"] = progress.near(turn.last_step)
        beside = (
            f" While training it was {then:.4g}, but that is measured in another way, so the gap "
            "alone proves nothing."
        )
    sentence = (
        f"Perhaps: {name} was best at step {turn.step:,} ({turn.best:.4g}), now {turn.last:.4g}."
        if turn.has_turned
        else f"No sign of it: {name} on validation data went from {first.values[0]:.4g} at step "
        f"{first.steps[0]:,.0f} to {turn.last:.4g} at step {turn.last_step:,}."
    )
    return Answer(
        "overfitting",
        QUESTIONS["overfitting"],
        sentence + beside + told,
        figures | best,
        _HOW_APART,
        _missing(facts),
    )


def _is_lower_better(facts: Facts, name: str) -> bool:
    """The score of a task of this project is one where higher is better, whatever its name."""
    return not facts.is_own and is_lower_better(name)


def _unknown(facts: Facts, best: dict[str, Any], told: str) -> Answer:
    text = "Cannot be told: there are no scores on validation data."
    if facts.learning.scores:
        text = "Cannot be told from a single evaluation."
    return Answer(
        "overfitting",
        QUESTIONS["overfitting"],
        text + told,
        best,
        missing=f"a validation loss or score at several steps, and {_missing(facts)}",
    )


def _missing(facts: Facts) -> str:
    if facts.is_observed and not facts.learning.scores:
        return LOG_VALIDATION
    if facts.is_own and not facts.is_observed:
        return (
            "scores of a part of the training data: evaluate.train_samples above 0, and at least "
            "two evaluations"
        )
    return (
        "a training loss measured in the same way as the validation loss (without dropout and "
        "augmentation)" + _measured_by_train(facts)
    )


def _measured_by_train(facts: Facts) -> str:
    if facts.is_observed:
        return ": evaluate a part of the training data as well, and log it"
    return "; `paceline train` measures it on a part of the training data"


def _remedy(facts: Facts, gap: Gap, best: dict[str, Any]) -> str:
    if not gap.is_overfitting or not facts.is_own:
        return ""
    if best.get("is_kept"):
        return f"use the best checkpoint: paceline evaluate {facts.run} --checkpoint best"
    return "stop earlier, or regularise more"


def best_checkpoint(facts: Facts) -> tuple[dict[str, Any], str]:
    best, by = best_score(facts.learning), facts.learning.best_by
    if best is None or not facts.is_own or facts.is_observed:
        return {}, ""
    path = facts.run / "checkpoints" / stored.checkpoint_name(best.step)
    kept = "" if path.is_dir() else " (not kept)"
    figures = {"best_step": best.step, "best_score": best.values[by], "is_kept": path.is_dir()}
    return figures, f" The best checkpoint by {by} is step {best.step:,}{kept}."
