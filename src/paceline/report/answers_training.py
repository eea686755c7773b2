"""Answers about learning: is it trained, and does it overfit."""

import math
from typing import Any

import numpy as np

from paceline.record import checkpoints as stored
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.summary import Score, Summary
from paceline.report.trend import Numbers, Trend, in_groups, last_part, trend
from paceline.report.wording import again, go_on, number, signed
from paceline.schedule import ScheduleSettings, peak, rate_at
from paceline.units import count_of

_GUARD_WORDS = ("the loss diverged", "the loss is ")
"""How the warning begins with which training stops itself."""
_LAST_SHARE = 1 / 3
_MORE = 0.1
_MOST_POINTS = 60


def series(scores: list[Score], name: str) -> tuple[Numbers, Numbers]:
    """Steps and values of one measure; of a step scored twice the later one."""
    found = {score.step: score.values[name] for score in scores if name in score.values}
    steps = sorted(found)
    return np.array(steps, dtype=np.float64), np.array([found[s] for s in steps], dtype=np.float64)


def losses(summary: Summary) -> tuple[Numbers, Numbers]:
    return in_groups(summary.curves["step"], summary.curves["loss"], _MOST_POINTS)


# ---- is it fully trained


def trained(summary: Summary) -> Answer:
    by = summary.best_by
    score_trend = trend(*last_part(*series(summary.scores, by), _LAST_SHARE))
    loss_trend = trend(*last_part(*losses(summary), _LAST_SHARE))
    state, sentence = _state(summary, score_trend, loss_trend)
    figures: dict[str, Any] = {"state": state, "step": summary.step, "score_name": by or None}
    figures |= _trend_figures("score", score_trend, summary.step)
    figures |= _trend_figures("loss", loss_trend, summary.step)
    target, told = _target(summary)
    return Answer(
        "trained",
        QUESTIONS["trained"],
        " ".join(filter(None, [sentence, told])),
        figures | target,
        "the slope of the last third of the curve (median of all pairwise slopes) against the "
        "scatter around it",
        "" if state == "diverged" else _what_is_missing(summary, score_trend, loss_trend),
        _train_on(summary, state),
    )


def _state(summary: Summary, score: Trend | None, loss: Trend | None) -> tuple[str, str]:
    if not len(summary.curves):
        return "unknown", "Not started: no step was recorded."
    if problem := diverged(summary):
        return "diverged", f"No: {problem}."
    early = _stopped_early(summary)
    if score is not None:
        state, text = _by_score(summary, score)
    elif loss is not None:
        state, text = _by_loss(summary, loss)
    else:
        state, text = "unknown", f"Unclear: {count_of(summary.step, 'step')} show no trend."
    return state, text + _after_the_fall(summary, state) + early


def has_settled(summary: Summary) -> bool:
    """Whether the rate has come down, so that a slope of the past does not go on."""
    try:
        schedule = ScheduleSettings.model_validate(summary.settings.get("schedule", {}))
    except ValueError:
        return False
    steps = max(int(summary.settings.get("steps", 1)), 1)
    return rate_at(schedule, max(summary.step, 1), steps) < 0.1 * peak(schedule, steps)[0]


def _after_the_fall(summary: Summary, state: str) -> str:
    if state != "improving" or not has_settled(summary):
        return ""
    return (
        " But the rate has come down to nearly nothing, so going on brings less than that; a run "
        "with a longer schedule may bring more."
    )


def diverged(summary: Summary) -> str:
    """Why the loss says that the run was lost, or nothing."""
    last = max((attempt.number for attempt in summary.story.attempts), default=0)
    for event in summary.story.of_kind("warning"):
        if event["attempt"] == last and str(event.get("text")).startswith(_GUARD_WORDS):
            return str(event["text"])
    loss = summary.curves["loss"]
    if len(loss) and not math.isfinite(loss[-1]):
        return f"the loss is not a number at step {summary.step:,}"
    _, smooth = in_groups(summary.curves["step"], loss, 20)
    if len(smooth) >= 4 and smooth[-1] > max(1.5 * float(np.nanmin(smooth)), float(smooth[0])):
        return (
            f"the loss diverged: it rose from {number(float(np.nanmin(smooth)))} to "
            f"{number(float(smooth[-1]))}, above where it began"
        )
    return ""


def _stopped_early(summary: Summary) -> str:
    steps = summary.settings.get("steps", 0)
    if summary.step >= steps or summary.reason == "running":
        return ""
    return f" It ended at step {summary.step:,} of {steps:,}."


def _by_score(summary: Summary, found: Trend) -> tuple[str, str]:
    by, more = summary.best_by, max(round(_MORE * summary.step), 1)
    gain, error = found.gain(more), 2 * found.slope_error * more
    where = (
        f"over the last {found.num_points} evaluations (steps {found.first_step:,.0f} to "
        f"{found.last_step:,.0f}) {by}"
    )
    likely = (
        f"a further 10 % of steps ({more:,}) would likely bring {signed(gain)} "
        f"(give or take {error:.4f})"
    )
    if found.rises and gain > 0.25 * found.noise:
        return "improving", f"Not yet: {where} still rose, to {found.level:.4f}; {likely}."
    if found.falls:
        return "worsening", (
            f"It was trained too long: {where} fell to {found.level:.4f}; {likely}."
        )
    if found.is_doubtful:
        way = "rose" if found.slope > 0 else "fell"
        return "unclear", (
            f"Unclear: {where} {way}, but scatters too much for so few points (noise "
            f"{found.noise:.4f}); {likely}."
        )
    return "plateaued", (
        f"Yes, as far as this recipe goes: {where} stayed at {found.level:.4f} within its noise "
        f"of {found.noise:.4f}; {likely}."
    )


def _by_loss(summary: Summary, found: Trend) -> tuple[str, str]:
    gain = found.gain(max(round(_MORE * summary.step), 1))
    text = "By the training loss alone, as there are too few evaluations: "
    if found.falls:
        return "improving", (
            f"{text}not yet, it still falls; a further 10 % of steps would likely bring "
            f"{signed(gain)}."
        )
    if found.is_doubtful:
        return "unclear", f"{text}unclear, it scatters too much (at {number(found.level)})."
    return "plateaued", f"{text}it has stopped falling, at {number(found.level)}."


def _trend_figures(name: str, found: Trend | None, step: int) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        f"{name}_per_1000_steps": 1000 * found.slope,
        f"{name}_noise": found.noise,
        f"{name}_level": found.level,
        f"{name}_gain_of_10_percent": found.gain(max(round(_MORE * step), 1)),
    }


def _target(summary: Summary) -> tuple[dict[str, Any], str]:
    """Where it stands against what was published for the recipe."""
    target = summary.settings.get("target") or {}
    wanted, by = target.get("score"), summary.best_by
    if not isinstance(wanted, int | float):
        return {}, ""
    tests = [s for s in summary.evaluations if s.split == "test" and by in s.values]
    known = tests or [s for s in summary.scores if by in s.values]
    if not known:
        return {"target": wanted}, f"The recipe's target is {wanted:g} ({target.get('source')})."
    best = max(known, key=lambda score: score.values[by])
    reached, split = best.values[by], best.split
    short = wanted - reached
    distance = f"{short:.4g} short of" if short > 0 else f"{-short:.4g} above"
    text = (
        f"The best {split} {by}, {reached:.4g}, is {distance} the recipe's target of {wanted:g} "
        f"({target.get('source')})."
    )
    return {"target": wanted, "reached": reached, "reached_on": split}, text


def _what_is_missing(summary: Summary, score: Trend | None, loss: Trend | None) -> str:
    if score is not None:
        return "more evaluations: set evaluate.every_steps lower" if score.is_doubtful else ""
    if not len(summary.curves):
        return "steps"
    have = count_of(len(summary.scores), "evaluation")
    also = "" if loss is not None else "; more steps for the loss"
    return f"{have}, 4 are the least: set evaluate.every_steps lower{also}"


def _train_on(summary: Summary, state: str) -> str:
    if state == "improving" and has_settled(summary):
        return f"a longer schedule: {again(summary.run, f'steps={round(1.5 * summary.step)}')}"
    if state == "improving":
        steps = max(int(summary.settings.get("steps", 0)), round(1.1 * summary.step))
        steps = steps if steps > summary.step else round(1.1 * summary.step)
        return f"train on: {go_on(summary.run, f'steps={steps}')}"
    if state == "diverged":
        rate = (summary.settings.get("schedule") or {}).get("rate")
        lower = f"schedule.rate={rate / 2:g}" if isinstance(rate, int | float) else "schedule.rate"
        return f"halve the rate: {again(summary.run, lower)}"
    if state == "worsening":
        return f"use the best checkpoint: paceline evaluate {summary.run} --checkpoint best"
    return ""


# ---- is it overfitting


def overfitting(summary: Summary) -> Answer:
    ask = QUESTIONS["overfitting"]
    best = best_checkpoint(summary)
    steps, validation = series(summary.scores, "loss")
    train_steps, train = series(summary.train_scores, "loss")
    both = sorted(set(steps.tolist()) & set(train_steps.tolist()))
    how = (
        "loss on validation data and on a fixed part of the training data, both in evaluation mode"
    )
    if len(both) < 2:
        return _overfitting_unknown(summary, len(both), how, best)
    ours = np.array([validation[list(steps).index(step)] for step in both])
    theirs = np.array([train[list(train_steps).index(step)] for step in both])
    found = judge_gap(np.array(both), ours, theirs)
    sentence = _gap_sentence(found) + best[1]
    remedy = ""
    if found["is_overfitting"]:
        kept = best[0].get("is_kept")
        remedy = f"use the best checkpoint: paceline evaluate {summary.run} --checkpoint best"
        remedy = remedy if kept else "stop earlier, or regularise more"
    return Answer("overfitting", ask, sentence, found | best[0], how, remedy=remedy)


def judge_gap(steps: Numbers, validation: Numbers, train: Numbers) -> dict[str, Any]:
    """Overfitting is a validation loss that has turned up while the training loss goes on down."""
    lowest = int(np.argmin(validation))
    rise = float(validation[-1] - validation[lowest])
    steps_between = np.abs(np.diff(validation))
    noise = float(np.median(steps_between)) if len(steps_between) > 2 else 0.0
    falls_on = float(train[lowest] - train[-1])
    is_over = rise > max(2 * noise, 0.01 * abs(float(validation[lowest]))) and falls_on > 0
    gap = validation - train
    return {
        "is_overfitting": bool(is_over),
        "parts_at_step": int(steps[lowest]),
        "validation_loss": float(validation[-1]),
        "train_loss": float(train[-1]),
        "lowest_validation_loss": float(validation[lowest]),
        "gap": float(gap[-1]),
        "gap_before": float(gap[0]),
        "rise_since": rise,
        "train_fall_since": falls_on,
    }


def _gap_sentence(found: dict[str, Any]) -> str:
    now = (
        f"validation loss is {found['validation_loss']:.4f}, training loss measured the same way "
        f"{found['train_loss']:.4f}"
    )
    if found["is_overfitting"]:
        return (
            f"Yes: they part at step {found['parts_at_step']:,}. Since then validation loss rose "
            f"by {found['rise_since']:.4f} while training loss fell by "
            f"{found['train_fall_since']:.4f}; at the end {now}."
        )
    if found["gap"] > max(2 * found["gap_before"], 0.1 * found["validation_loss"]):
        return (
            f"It has begun to learn by heart, without harm so far: {now}, a gap of "
            f"{found['gap']:.4f}, but validation loss has not turned up."
        )
    return f"No: {now}, and validation loss has not turned up."


def _overfitting_unknown(
    summary: Summary, num_both: int, how: str, best: tuple[dict[str, Any], str]
) -> Answer:
    steps, validation = series(summary.scores, "loss")
    text = "Cannot be told: training data was not scored the way validation data was"
    if num_both == 1:
        text = "Cannot be told from a single evaluation"
    elif len(validation) >= 3 and int(np.argmin(validation)) < len(validation) - 1:
        lowest = int(np.argmin(validation))
        text += (
            f"; validation loss was lowest at step {steps[lowest]:,.0f} "
            f"({validation[lowest]:.4f}) and is {validation[-1]:.4f} at the end"
        )
    return Answer(
        "overfitting",
        QUESTIONS["overfitting"],
        f"{text}.{best[1]}",
        best[0],
        how,
        "scores of a part of the training data: evaluate.train_samples above 0, and at least two "
        "evaluations",
    )


def best_checkpoint(summary: Summary) -> tuple[dict[str, Any], str]:
    by = summary.best_by
    known = [score for score in summary.scores if by in score.values]
    if not known:
        return {}, ""
    best = max(known, key=lambda score: score.values[by])
    path = summary.run / "checkpoints" / stored.checkpoint_name(best.step)
    kept = "" if path.is_dir() else " (not kept)"
    figures = {"best_step": best.step, "best_score": best.values[by], "is_kept": path.is_dir()}
    return figures, f" The best checkpoint by {by} is step {best.step:,}{kept}."
