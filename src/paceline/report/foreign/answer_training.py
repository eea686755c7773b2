"""What another tool's run learned: whether it is done, whether it overfits, what its rate does."""

from typing import Any

import numpy as np

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.foreign.curve import Curve, Points, shown, value_near
from paceline.report.foreign.rates import schedule_of
from paceline.report.foreign.run import ForeignRun
from paceline.report.trend import Trend, in_groups, last_part, trend
from paceline.report.wording import percent
from paceline.schedule import ScheduleSettings, in_words, peak, rate_at
from paceline.terminal import sparkline

_LAST_SHARE = 0.25
_MOST_POINTS = 200
_FEW_POINTS = 5


def trained(run: ForeignRun) -> Answer:
    question = QUESTIONS["trained"]
    figures: dict[str, Any] = {
        "step": run.step,
        "steps_wanted": run.steps_wanted,
        "training_loss": shown(run.training_loss.points),
        "validation_loss": shown(run.validation_loss.points),
        "scores": {name: shown(curve.points) for name, curve in run.scores.items()},
    }
    if len(run.training_loss.points) >= _FEW_POINTS:
        figures["plot"] = sparkline([value for _, value in run.training_loss.points], low=0.0)
    loss_trend = end_of(run.training_loss)
    sentences = [_how_far(run, loss_trend)]
    if run.training_loss.first_not_finite is not None:
        figures["diverged_at_step"] = run.training_loss.first_not_finite
    sentences += [_loss_in_words(run, loss_trend), *_scores_in_words(run)]
    if loss_trend is not None:
        figures["loss_change_for_10_percent_more"] = loss_trend.gain(0.1 * run.step)
        figures["loss_noise"] = loss_trend.noise
    return Answer(
        "trained",
        question,
        " ".join(filter(None, sentences)),
        figures,
        how=f"slope of the last {percent(_LAST_SHARE)} of the training loss against its noise",
        missing=_missing_for_trained(run),
    )


def end_of(curve: Curve) -> Trend | None:
    points = curve.points
    if not points:
        return None
    steps, values = np.array(points, dtype=np.float64).T
    return trend(*in_groups(*last_part(steps, values, _LAST_SHARE), _MOST_POINTS))


def _how_far(run: ForeignRun, loss_trend: Trend | None) -> str:
    if run.training_loss.first_not_finite is not None:
        where = run.training_loss.first_not_finite
        return f"No: it diverged, the loss is not a number from step {where:,} on."
    if run.steps_wanted is None:
        return _without_a_plan(run, loss_trend)
    if run.has_end:
        return f"All {run.steps_wanted:,} steps were done."
    every = run.print_every_steps or 1
    more = f" (a line comes every {every:,} steps, so it may have done up to {every - 1} more)"
    return (
        f"No: it stopped at step {run.step:,} of {run.steps_wanted:,}, "
        f"{percent(run.step / run.steps_wanted)} of what was wanted{more * (every > 1)}."
    )


def _without_a_plan(run: ForeignRun, loss_trend: Trend | None) -> str:
    ended = "It ended by itself" if run.has_end else "The log ends"
    scores = next((curve.points for curve in run.scores.values() if len(curve.points) > 1), [])
    if scores and scores[-1][1] > scores[-2][1]:
        return f"{ended} at step {run.step:,}, while its score was still rising: not fully trained."
    if loss_trend is not None and loss_trend.falls:
        return f"{ended} at step {run.step:,}, while its loss was still falling: not fully trained."
    return f"{ended} at step {run.step:,}; how many steps were wanted is not in the log."


def _loss_in_words(run: ForeignRun, loss_trend: Trend | None) -> str:
    points = run.training_loss.points
    if not points:
        return "The log holds no training loss."
    (first_step, first), (last_step, last) = points[0], points[-1]
    text = f"The training loss went from {first:.4g} at step {first_step:,} to {last:.4g} at "
    text += f"step {last_step:,}"
    if loss_trend is None:
        return text + "."
    change = loss_trend.gain(0.1 * run.step)
    if not loss_trend.is_certain:
        return (
            f"{text} and is flat within its noise at the end; 10 % more steps would bring little."
        )
    direction = "falling" if change < 0 else "rising"
    bring = f"10 % more steps would change it by about {change:+.2g}"
    return f"{text} and was still {direction} at the end; {bring}."


def _scores_in_words(run: ForeignRun) -> list[str]:
    sentences = []
    for name, curve in run.scores.items():
        told = [f"{value:.4g} at step {step:,}" for step, value in curve.points]
        if len(told) > 3:
            top_step, top = max(curve.points, key=lambda point: point[1])
            told = [told[0], f"at best {top:.4g} at step {top_step:,}", f"{told[-1]} at the end"]
        sentences.append(f"{name}: {', '.join(told)}.")
        if doubt := doubtful_first(curve.points, run):
            sentences.append(doubt)
    return sentences


def doubtful_first(points: Points, run: ForeignRun) -> str:
    """A score that is best before anything was learned does not measure what was learned."""
    if len(points) < 2 or points[0][0] > 0.01 * run.step:
        return ""
    (step, first), last = points[0], points[-1][1]
    if first < 1.5 * last or not run.training_loss:
        return ""
    return (
        f"The {first:.4g} at step {step:,}, before any training, cannot be real: such a score is "
        "found when the model is fed the reference while it is scored (teacher forcing), and then "
        "the later ones are no measure of quality either."
    )


def _missing_for_trained(run: ForeignRun) -> str:
    lacking = []
    if run.steps_wanted is None:
        lacking.append("how many steps were wanted")
    if sum(len(curve.points) for curve in run.scores.values()) < 4:
        lacking.append("more scores on validation data, to tell their slope from noise")
    return "; ".join(lacking)


def overfitting(run: ForeignRun) -> Answer:
    question = QUESTIONS["overfitting"]
    if len(run.validation_loss.points) > 1:
        sentence, figures = _by_loss(run)
    elif any(len(curve.points) > 1 for curve in run.scores.values()):
        sentence, figures = _by_score(run)
    else:
        return Answer(
            "overfitting",
            question,
            "The log does not tell: it holds no scores on other data.",
            missing="a validation loss or score, at several steps",
        )
    return Answer(
        "overfitting",
        question,
        sentence,
        figures,
        how="validation against what was printed while training",
        missing="a training loss measured in the same way as the validation loss (without dropout "
        "and augmentation); `paceline train` measures it on a part of the training data",
    )


def _by_loss(run: ForeignRun) -> tuple[str, dict[str, Any]]:
    points = run.validation_loss.points
    best_step, best = min(points, key=lambda point: point[1])
    last_step, last = points[-1]
    figures: dict[str, Any] = {
        "best_step": best_step,
        "best_validation_loss": best,
        "last_validation_loss": last,
    }
    beside = ""
    if run.training_loss:
        training = value_near(run.training_loss.points, last_step)
        figures["training_loss_then"] = training
        beside = f" (training loss then: {training:.4g})"
    if last > 1.02 * best and best_step < last_step:
        return (
            f"Yes: the validation loss was best at step {best_step:,} ({best:.4g}) and rose to "
            f"{last:.4g} at step {last_step:,}{beside}; use a checkpoint near step {best_step:,}."
        ), figures
    few = " These are few points." if len(points) < 4 else ""
    return (
        f"No sign of it: the last validation loss, {last:.4g} at step {last_step:,}, is "
        f"{'the best' if last_step == best_step else 'as good as the best'}{beside}.{few}"
    ), figures


def _by_score(run: ForeignRun) -> tuple[str, dict[str, Any]]:
    name, curve = next((n, c) for n, c in run.scores.items() if len(c.points) > 1)
    (first_step, first), (last_step, last) = curve.points[0], curve.points[-1]
    best_step, best = max(curve.points, key=lambda point: point[1])
    figures: dict[str, Any] = {
        "measure": name,
        "best_step": best_step,
        "best": best,
        "first": first,
        "last": last,
    }
    beside = ""
    if training := run.training_scores.get(name):
        then = value_near(training.points, last_step)
        figures["training_score_then"] = then
        beside = (
            f" While training it was {then:.4g}, but that is measured in another way, so the gap "
            "of itself proves nothing."
        )
    if best_step < last_step and best - last > 0.02 * abs(best):
        return (
            f"Perhaps: {name} was best at step {best_step:,} ({best:.4g}), now {last:.4g}.{beside}",
            (figures),
        )
    return (
        f"No sign of it: {name} on validation data went from {first:.4g} at step {first_step:,} to "
        f"{last:.4g} at step {last_step:,}.{beside}"
    ), figures


def rate(run: ForeignRun) -> Answer:
    question = QUESTIONS["rate"]
    schedule = schedule_of(run.config)
    if schedule is not None:
        return _by_schedule(run, schedule, question)
    if run.rate:
        return _by_curve(run, question)
    if policy := run.config.get("lr_policy"):
        given = run.config.get("lr_policy_params")
        return Answer(
            "rate",
            question,
            f"Its configuration names the policy {policy} with {given}.",
            missing="what that gives at each step: log the rate",
        )
    return Answer(
        "rate",
        question,
        "The log does not tell the learning rate.",
        missing="the rate as a printed value or a scalar named `lr` or `learning_rate`",
    )


def _by_schedule(run: ForeignRun, schedule: ScheduleSettings, question: str) -> Answer:
    steps = run.steps_wanted or max(run.step, 1)
    highest, where = peak(schedule, steps)
    end = rate_at(schedule, max(run.step, 1), steps)
    some = np.unique(np.linspace(1, steps, 200).astype(int))
    figures: dict[str, Any] = {
        "policy": schedule.policy,
        "peak_rate": highest,
        "peak_step": where,
        "rate_at_end": end,
        "rate": [[int(step), rate_at(schedule, int(step), steps)] for step in some],
    }
    figures["plot"] = sparkline([value for _, value in figures["rate"]], low=0.0)
    sentence = f"{in_words(schedule, steps)}. "
    share = f"{end:.3g}, {percent(end / highest)} of the peak"
    if run.step < where:
        sentence += (
            f"The run ended at step {run.step:,}, before the peak: the rate only rose (to {share}) "
            "and never fell, so the weights had no time to settle."
        )
    else:
        sentence += f"At the last step, {run.step:,}, it was {share}."
    return Answer(
        "rate",
        question,
        sentence[0].upper() + sentence[1:],
        figures,
        how="computed from the printed configuration",
    )


def _by_curve(run: ForeignRun, question: str) -> Answer:
    points = run.rate.points
    (first_step, first), (last_step, last) = points[0], points[-1]
    top_step, top = max(points, key=lambda point: point[1])
    figures: dict[str, Any] = {
        "peak_rate": top,
        "peak_step": top_step,
        "rate_at_end": last,
        "rate": shown(points),
    }
    if min(value for _, value in points) == top:
        sentence = f"It is {top:.3g} wherever it was logged."
    elif top_step == first_step:
        sentence = (
            f"It falls from {first:.3g} at step {first_step:,} to {last:.3g} at {last_step:,}."
        )
    elif top_step == last_step:
        sentence = (
            f"It rises from {first:.3g} at step {first_step:,} to {last:.3g} at {last_step:,}."
        )
    else:
        sentence = (
            f"It rises from {first:.3g} to its peak of {top:.3g} at step {top_step:,}, then falls "
            f"to {last:.3g} at step {last_step:,}."
        )
    if len(points) < _FEW_POINTS:
        sentence += _about_few_rates(run)
        missing = "its values in between and the policy's name"
        return Answer("rate", question, sentence, figures, how="as printed", missing=missing)
    figures["plot"] = sparkline([value for _, value in points], low=0.0)
    sentence += f" At the end it was {percent(last / top)} of its peak" if top > 0 else ""
    sentence += ", so the weights had settled." if last <= 0.05 * top else "."
    return Answer("rate", question, sentence, figures, how="as logged")


def _about_few_rates(run: ForeignRun) -> str:
    """A program that prints the rate between epochs prints it after it has moved on."""
    last_step, last = run.rate.points[-1]
    if last_step < run.step:
        return ""
    return f" If that is printed after the rate was changed, no step used {last:.3g} any more."
