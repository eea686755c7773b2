"""The answer about learning: is it fully trained, and what would more steps bring."""

import math
from typing import Any

import numpy as np

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.script import LOG_VALIDATION
from paceline.report.answers.time import is_evaluated_much
from paceline.report.answers.words import score_change, score_value, signed
from paceline.report.commands import again, go_on
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import (
    LastFall,
    best_of,
    diverged,
    has_settled,
    is_below_one_epoch,
    is_doubtful_start,
    is_lower_better,
    is_spent,
    is_warming_up,
    last_drop,
    last_fall,
    loss_trend,
    measures,
    score_trend,
    series,
    validation_trend,
)
from paceline.report.facts.trend import LEAST_POINTS, Points, Trend
from paceline.terminal import sparkline
from paceline.units import count_of, format_number, percent

_MORE = 0.1
_LEAST_GAIN = 0.25
"""Of the noise: a slope that brings less with 10 % more steps is not worth going on for."""
_FEW_POINTS = 5
_EPOCHS_TO_TRY = 3


def trained(facts: Facts) -> Answer:
    score, loss = _believed_score_trend(facts), loss_trend(facts.learning, facts.rate)
    state, sentence = _state(facts, score, loss)
    by = facts.learning.best_by
    figures: dict[str, Any] = {"state": state, "step": facts.step, "score_name": by or None}
    figures |= _trend_figures(facts, "score", score)
    figures |= _trend_figures(facts, "loss", loss)
    target, told = _target(facts)
    if not facts.is_own:
        figures |= _curve_figures(facts)
        told = " ".join([_loss_in_words(facts), *_scores_in_words(facts)])
    return Answer(
        "trained",
        QUESTIONS["trained"],
        " ".join(filter(None, [sentence, told])),
        figures | target,
        f"{'' if facts.data.epochs is None else 'epochs; '}the slope of the last third of the "
        "curve (the median of all pairwise slopes) compared with the noise around it",
        "" if state in ("diverged", "untrained") else _what_is_missing(facts, score, loss),
        _train_on(facts, state),
    )


def _believed_score_trend(facts: Facts) -> Trend | None:
    curve = series(facts.learning.scores, facts.learning.best_by)
    is_doubtful = is_doubtful_start(curve, facts.learning, facts.step)
    return None if is_doubtful else score_trend(facts.learning, facts.rate)


def _state(facts: Facts, score: Trend | None, loss: Trend | None) -> tuple[str, str]:
    if not len(facts.learning.loss) and score is None:
        return _state_without_loss(facts)
    if problem := diverged(facts.learning):
        return "diverged", f"No: {problem}."
    if is_below_one_epoch(facts) or (is_warming_up(facts) and not _stopped_short(facts)):
        return "untrained", _not_trained_yet(facts, loss)
    validation = validation_trend(facts.learning, facts.rate)
    if score is not None and not (score.is_doubtful and loss is not None and loss.falls):
        state, text = _by_score(facts, score)
    elif score is None and validation is not None:
        state, text = _by_validation(facts, validation)
    elif score is None and (fall := last_fall(facts.learning, facts.step)) is not None:
        state, text = _by_last_fall(facts, fall)
    elif loss is not None:
        state, text = _by_loss(facts, loss)
    else:
        state, text = "unknown", f"Unclear: {count_of(facts.step, 'step')} are too few for a trend."
    text += _after_the_fall(facts, state) + _few_epochs(facts, state) + _since_drop(facts)
    short = _stopped_short(facts)
    if short and state in ("improving", "unclear", "unknown"):
        return state, f"No: it {short} {text}"
    return state, f"{text} It {short}" if short else text + _how_far(facts)


def _since_drop(facts: Facts) -> str:
    loss = facts.learning.loss
    drop = last_drop(facts.rate, 2 / 3 * facts.step, facts.step) if len(loss) else None
    if drop is None:
        return ""
    return f" Only what came after the learning rate dropped at step {drop:,.0f} counts here."


def _few_epochs(facts: Facts, state: str) -> str:
    """Where the curves do not tell, how often the data was seen is what is left to go by."""
    epochs = facts.data.epochs
    if state not in ("unclear", "unknown") or epochs is None or epochs >= _EPOCHS_TO_TRY:
        return ""
    return f" It saw the training data {epochs:.1f} times, which is rarely enough."


def _not_trained_yet(facts: Facts, loss: Trend | None) -> str:
    """Whatever its curves do: a part of the data was never seen, or its rate never reached its
    peak."""
    epochs, by = facts.data.epochs or 0.0, facts.learning.best_by
    text = f"Not trained yet: in {count_of(facts.step, 'step')} "
    if is_below_one_epoch(facts):
        text += f"it saw {percent(epochs)} of the training data, less than one epoch"
    else:
        text += "the learning rate was still rising (warm-up)"
    losses, scores = facts.learning.loss, series(facts.learning.scores, by)
    if len(losses) > 1:
        text += f"; training loss went from {losses.values[0]:.4g} to {losses.values[-1]:.4g}"
        text += " and still falls" if loss is not None and loss.falls else ""
    if len(scores):
        text += f"; the best {by} is {score_value(facts, by, best_of(scores, facts.learning))}"
    short = _stopped_short(facts)
    return f"{text}. It {short}" if short else f"{text}."


def _state_without_loss(facts: Facts) -> tuple[str, str]:
    if problem := diverged(facts.learning):
        return "diverged", f"No: {problem}."
    if facts.is_own:
        return "unknown", "Not started: no step was recorded."
    short = _stopped_short(facts)
    sentence = f"No: it {short}" if short else "Unclear: the log holds too little to tell."
    return "unknown", sentence + _how_far(facts)


def _after_the_fall(facts: Facts, state: str) -> str:
    if state != "improving" or not has_settled(facts):
        return ""
    if is_spent(facts):
        return " A new run with a longer schedule may bring more."
    return (
        " But the learning rate is almost zero by now, so going on brings less than that; a new "
        "run with a longer schedule may bring more."
    )


def _stopped_short(facts: Facts) -> str:
    """Where it ended, if that is before the step at which it was to end."""
    step, wanted, every = facts.step, facts.steps_wanted, facts.steps_per_line
    is_done = facts.reason == "running" or (bool(facts.reason) and not facts.is_own)
    if wanted is None or step >= wanted or is_done:
        return ""
    more = f" (a line comes every {every:,} steps, so it may have done up to {every - 1} more)"
    return (
        f"stopped at step {step:,} of {wanted:,}, {percent(step / wanted)} of what was wanted"
        f"{more * (every > 1)}."
    )


def _how_far(facts: Facts) -> str:
    """What a log says of its end."""
    if facts.is_own or _stopped_short(facts):
        return ""
    if facts.steps_wanted is not None:
        return f" All {facts.steps_wanted:,} steps were done."
    ended = "It ended by itself" if facts.reason else "The log ends"
    return f" {ended} at step {facts.step:,}; how many steps were wanted is not in the log."


def _by_score(facts: Facts, found: Trend) -> tuple[str, str]:
    by, more = facts.learning.best_by, max(round(_MORE * facts.step), 1)
    gain, error = found.gain(more), 2 * found.slope_error * more
    where = (
        f"over the last {found.num_points} evaluations (steps {found.first_step:,.0f} to "
        f"{found.last_step:,.0f}) {by}"
    )
    lower = facts.learning.lower_is_better
    level, noise = score_value(facts, by, found.level), score_change(facts, by, found.noise)
    likely = (
        f"10 % more steps ({more:,}) would probably change it by "
        f"{score_change(facts, by, gain, is_signed=True)} (plus or minus "
        f"{score_change(facts, by, error)})"
    )
    gets_better, gets_worse = found.rises, found.falls
    if lower:
        gets_better, gets_worse = gets_worse, gets_better
    if gets_better and abs(gain) > _LEAST_GAIN * found.noise:
        way = "falling" if lower else "rising"
        if is_spent(facts) or (lower and found.level + gain < 0):
            likely = _change(facts, found, more, lower)
        return "improving", f"Not yet: {where} was still {way}, to {level}; {likely}."
    if gets_worse:
        way = "rose" if lower else "fell"
        return "worsening", (f"It was trained too long: {where} {way} to {level}; {likely}.")
    if found.is_doubtful:
        way = "rose" if found.slope > 0 else "fell"
        return "unclear", (
            f"Unclear: {where} {way}, but the noise ({noise}) is too large for so few points; "
            f"{likely}."
        )
    return "plateaued", (
        f"Yes, as far as this recipe goes: {where} stayed at {level} within its noise of {noise}; "
        f"{likely}."
    )


def _by_validation(facts: Facts, found: Trend) -> tuple[str, str]:
    """Where no score was measured often enough, the loss on validation data is what counts."""
    more = max(round(_MORE * facts.step), 1)
    where = (
        f"over the last {found.num_points} evaluations (steps {found.first_step:,.0f} to "
        f"{found.last_step:,.0f}) the validation loss"
    )
    if found.falls and -found.gain(more) > _LEAST_GAIN * found.noise:
        likely = _change(facts, found, more, is_positive=True)
        return "improving", f"Not yet: {where} was still falling, to {found.level:.4f}; {likely}."
    if found.rises:
        return "worsening", f"It was trained too long: {where} rose to {found.level:.4f}."
    if found.is_doubtful:
        way = "fell" if found.slope < 0 else "rose"
        return "unclear", (
            f"Unclear: {where} {way}, but the noise ({found.noise:.4f}) is too large for so few "
            "points."
        )
    return "plateaued", (
        f"Yes, as far as this recipe goes: {where} stayed at {found.level:.4f} within its noise "
        f"of {found.noise:.4f}."
    )


def _change(facts: Facts, found: Trend, more: int, is_positive: bool) -> str:
    """What more steps would bring, as far as a straight line tells: no loss falls below zero, and
    nothing comes of a rate that is zero."""
    gain = found.gain(more)
    if is_spent(facts):
        return "the learning rate is almost zero by now, so no more is coming with this schedule"
    if is_positive and found.level + gain < 0:
        return "how far it will fall cannot be told from so steep a line"
    return f"10 % more steps ({more:,}) would probably change it by {signed(gain)}"


def _by_last_fall(facts: Facts, fall: LastFall) -> tuple[str, str]:
    """Two evaluations give no trend, but a fall as large as this is no noise."""
    text = (
        f"Not yet: between the last two evaluations (steps {fall.first_step:,.0f} and "
        f"{fall.last_step:,.0f}) the validation loss fell from {fall.before:.4f} to "
        f"{fall.after:.4f}"
    )
    if is_spent(facts):
        text += "; the learning rate is almost zero by now, so no more is coming with this schedule"
    return "improving", f"{text}."


def _by_loss(facts: Facts, found: Trend) -> tuple[str, str]:
    more = max(round(_MORE * facts.step), 1)
    text = f"By the training loss alone, because {_why_not_by_score(facts)}: "
    if found.falls:
        return "improving", (
            f"{text}not yet, it still falls; {_change(facts, found, more, is_positive=True)}."
        )
    if found.is_doubtful:
        level = format_number(found.level)
        return "unclear", f"{text}unclear, its noise is too large (at {level})."
    return "plateaued", f"{text}it has stopped falling, at {format_number(found.level)}."


def _why_not_by_score(facts: Facts) -> str:
    is_known = _believed_score_trend(facts) is not None
    name = facts.learning.best_by
    return f"the noise of {name} is too large" if is_known else "there are too few evaluations"


def _trend_figures(facts: Facts, name: str, found: Trend | None) -> dict[str, Any]:
    if found is None:
        return {}
    gain = found.gain(max(round(_MORE * facts.step), 1))
    is_positive = name == "loss" or facts.learning.lower_is_better
    is_possible = (not is_positive or found.level + gain >= 0) and not is_spent(facts)
    return {
        f"{name}_per_1000_steps": 1000 * found.slope,
        f"{name}_noise": found.noise,
        f"{name}_level": found.level,
        f"{name}_gain_of_10_percent": gain if is_possible else None,
    }


def _target(facts: Facts) -> tuple[dict[str, Any], str]:
    """Where it stands against what was published for the recipe."""
    target = facts.settings.get("target") or {}
    wanted, by, learning = target.get("score"), facts.learning.best_by, facts.learning
    if not isinstance(wanted, int | float):
        return {}, ""
    tests = [s for s in learning.evaluations if s.split == "test" and by in s.values]
    known = tests or [s for s in learning.scores if by in s.values]
    if not known:
        return {"target": wanted}, f"The recipe's target is {wanted:g} ({target.get('source')})."
    best = max(known, key=lambda score: score.values[by])  # a target is of an own run
    reached, split = best.values[by], best.split
    short = wanted - reached
    distance = f"{short:.4g} short of" if short > 0 else f"{-short:.4g} above"
    text = (
        f"The best {split} {by}, {reached:.4g}, is {distance} the recipe's target of {wanted:g} "
        f"({target.get('source')})."
    )
    return {"target": wanted, "reached": reached, "reached_on": split}, text


def _curve_figures(facts: Facts) -> dict[str, Any]:
    """The curves themselves, which the report of a log has in no other place."""
    learning = facts.learning
    figures: dict[str, Any] = {
        "steps_wanted": facts.steps_wanted,
        "training_loss": learning.loss.listed(),
        "validation_loss": series(learning.scores, "loss").listed(),
        "scores": {n: series(learning.scores, n).listed() for n in measures(learning.scores)},
    }
    if len(learning.loss) >= _FEW_POINTS:
        figures["plot"] = sparkline(learning.loss.values.tolist(), low=0.0)
    if learning.not_finite_at is not None:
        figures["not_finite_at_step"] = learning.not_finite_at
    if learning.not_finite_from is not None:
        figures["diverged_at_step"] = learning.not_finite_from
    return figures


def _loss_in_words(facts: Facts) -> str:
    loss = facts.learning.loss
    if not len(loss):
        return "The log holds no training loss."
    text = (
        f"The training loss went from {loss.values[0]:.4g} at step {loss.steps[0]:,.0f} to "
        f"{loss.values[-1]:.4g} at step {loss.steps[-1]:,.0f}."
    )
    if facts.learning.not_finite_at is not None and facts.learning.not_finite_from is None:
        text += f" At step {facts.learning.not_finite_at:,} it was not a number, but went on."
    return text


def _scores_in_words(facts: Facts) -> list[str]:
    sentences = []
    for name in measures(facts.learning.scores):
        curve = series(facts.learning.scores, name)
        sentences.append(f"{name}: {_curve_in_words(curve, is_lower_better(name))}.")
        if is_doubtful_start(curve, facts.learning, facts.step):
            sentences.append(
                f"The {curve.values[0]:.4g} at step {curve.steps[0]:,.0f}, before any training, "
                "cannot be real: such a score is found when the model is fed the reference while "
                "it is scored (teacher forcing), and then the later ones are no measure of quality "
                "either."
            )
    return sentences


def _curve_in_words(curve: Points, lower_is_better: bool) -> str:
    told = [f"{v:.4g} at step {s:,.0f}" for s, v in zip(curve.steps, curve.values, strict=True)]
    if len(told) > 3:
        top = int(np.argmin(curve.values) if lower_is_better else np.argmax(curve.values))
        told = [told[0], f"at best {told[top]}", f"{told[-1]} at the end"]
    return ", ".join(told)


def _what_is_missing(facts: Facts, score: Trend | None, loss: Trend | None) -> str:
    is_cheap = not is_evaluated_much(facts)  # else the report asks for fewer evaluations
    set_lower = ": set evaluate.every_steps lower" if facts.is_own and is_cheap else ""
    set_lower = f": {LOG_VALIDATION}" if facts.is_observed else set_lower
    is_unknown = facts.steps_wanted is None and not facts.is_observed
    lacking = ["how many steps were wanted"] if is_unknown else []
    if score is not None:
        lacking += [f"more evaluations{set_lower}"] if score.is_doubtful else []
    elif facts.is_own and not len(facts.learning.loss):
        lacking.append("steps")
    else:
        have = count_of(len(series(facts.learning.scores, facts.learning.best_by)), "evaluation")
        lacking.append(f"{have}, {LEAST_POINTS} are the least{set_lower}")
        lacking += ["more steps for the loss"] if loss is None else []
    return "; ".join(lacking)


def _train_on(facts: Facts, state: str) -> str:
    if not facts.is_own or facts.is_observed:
        return ""
    if state == "untrained" or (state == "improving" and has_settled(facts)):
        return _longer(facts)
    if state == "improving":
        steps = max(facts.steps_wanted or 0, round(1.1 * facts.step))
        steps = steps if steps > facts.step else round(1.1 * facts.step)
        return f"train on: {go_on(facts.run, f'steps={steps}')}"
    if state == "diverged":
        rate = (facts.settings.get("schedule") or {}).get("rate")
        lower = f"schedule.rate={rate / 2:g}" if isinstance(rate, int | float) else "schedule.rate"
        return f"halve the learning rate: {again(facts.run, lower)}"
    if state == "worsening":
        return f"use the best checkpoint: paceline evaluate {facts.run} --checkpoint best"
    return ""


def _longer(facts: Facts) -> str:
    """To the end; else a new run, because the schedule of this one was made for so few steps."""
    if (facts.steps_wanted or 0) > facts.step:
        return f"train on: {go_on(facts.run, f'steps={facts.steps_wanted}')}"
    if is_warming_up(facts) and not is_below_one_epoch(facts):
        fitting = f"schedule.warmup_steps={max(facts.step // 10, 1)}"
        return f"a warm-up that fits the run: {again(facts.run, fitting)}"
    if not is_below_one_epoch(facts):
        return f"a longer schedule: {again(facts.run, f'steps={round(1.5 * facts.step)}')}"
    steps = math.ceil(_EPOCHS_TO_TRY * facts.step / (facts.data.epochs or 1.0))
    return f"train for about {_EPOCHS_TO_TRY} epochs: {again(facts.run, f'steps={steps}')}"
