"""The answer about the learning rate: policy, peak, and what its end means for the run."""

from typing import Any

import numpy as np

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import is_settled, planned_steps
from paceline.report.facts.trend import Points
from paceline.schedule import ScheduleSettings, in_words, peak, rate_at
from paceline.terminal import sparkline
from paceline.units import percent

_PLOT_WIDTH = 48
_NUM_PLANNED = 200
_PARTLY_SETTLED = 0.6
_FEW_POINTS = 5


def rate(facts: Facts) -> Answer:
    if facts.rate.schedule is not None:
        return _by_schedule(facts, facts.rate.schedule)
    if facts.is_own:
        sentence = "Not known: the recipe's schedule cannot be read."
        missing = "a valid `schedule` in recipe.yaml"
    elif len(facts.rate.logged):
        return _by_curve(facts, facts.rate.logged)
    elif facts.rate.policy:
        sentence = f"Its configuration names the policy {facts.rate.policy}."
        missing = "what that gives at each step: log the rate"
    else:
        sentence = "The log does not tell the learning rate."
        missing = "the rate as a printed value or a scalar named `lr` or `learning_rate`"
    return Answer("rate", QUESTIONS["rate"], sentence, missing=missing)


def planned_rates(facts: Facts, schedule: ScheduleSettings) -> Points:
    """The whole plan, in few enough points for a plot."""
    steps = planned_steps(facts)
    some = [1 + n * (steps - 1) // (_NUM_PLANNED - 1) for n in range(_NUM_PLANNED)]
    rates = [rate_at(schedule, step, steps) * facts.rate.scale for step in some]
    return Points.of(zip(some, rates, strict=True))


def _by_schedule(facts: Facts, schedule: ScheduleSettings) -> Answer:
    steps, scale = planned_steps(facts), facts.rate.scale
    highest, where = peak(schedule, steps)
    plan = planned_rates(facts, schedule)
    now = rate_at(schedule, max(facts.step, 1), steps)
    text = in_words(schedule, steps, scale)
    figures: dict[str, Any] = {
        "policy": schedule.policy,
        "peak_rate": highest * scale,
        "peak_step": where,
        "rate_at_end": now * scale,
        "share_of_peak_at_end": now / highest,
        "plot": sparkline(plan.values.tolist(), _PLOT_WIDTH, low=0.0),
    }
    if not facts.is_own:
        by_step = dict(zip(plan.steps.tolist(), plan.values.tolist(), strict=True))
        figures["rate"] = [[int(step), value] for step, value in by_step.items()]
    return Answer(
        "rate",
        QUESTIONS["rate"],
        f"{text[0].upper()}{text[1:]}. {_meaning(facts, now * scale, highest * scale, where)}",
        figures,
        facts.rate.how,
    )


def _meaning(facts: Facts, now: float, highest: float, where: int) -> str:
    share = now / highest
    at = percent(share) if facts.is_own else f"{now:.3g}, {percent(share)}"
    if not facts.step:
        return "The run has not begun to follow it."
    if facts.step < where:
        return (
            f"The run ended at step {facts.step:,}, before the peak: the rate only rose (to "
            f"{now:.3g}, {percent(share)} of the peak) and never fell, so the weights had no time "
            "to settle."
        )
    if is_settled(share):
        return f"The run ended at {at} of the peak, so the weights had settled."
    if share < _PARTLY_SETTLED:
        return (
            f"The run ended at {at} of the peak: partly settled, the last fall is still to be had."
        )
    return (
        f"The run ended at {at} of the peak: ending here gives away what a fall to "
        "near zero usually brings."
    )


def _by_curve(facts: Facts, points: Points) -> Answer:
    top = int(np.argmax(points.values))
    highest, last = float(points.values[top]), float(points.values[-1])
    figures: dict[str, Any] = {
        "peak_rate": highest,
        "peak_step": int(points.steps[top]),
        "rate_at_end": last,
        "rate": points.listed(),
    }
    sentence, missing = _course(points, top), ""
    if len(points) < _FEW_POINTS:
        sentence += _about_few_rates(facts, points)
        missing = "its values in between and the policy's name"
    else:
        figures["plot"] = sparkline(points.values.tolist(), _PLOT_WIDTH, low=0.0)
        if highest > 0:
            figures["share_of_peak_at_end"] = last / highest
            where = int(points.steps[top])
            sentence += f" {_meaning(facts, last, highest, where)}"
    return Answer("rate", QUESTIONS["rate"], sentence, figures, facts.rate.how, missing)


def _course(points: Points, top: int) -> str:
    first, last = float(points.values[0]), float(points.values[-1])
    begin, end = f"{points.steps[0]:,.0f}", f"{points.steps[-1]:,.0f}"
    highest = float(points.values[top])
    if float(points.values.min()) == highest:
        return f"It is {highest:.3g} wherever it was logged."
    if top == 0:
        return f"It falls from {first:.3g} at step {begin} to {last:.3g} at {end}."
    if top == len(points) - 1:
        return f"It rises from {first:.3g} at step {begin} to {last:.3g} at {end}."
    return (
        f"It rises from {first:.3g} to its peak of {highest:.3g} at step {points.steps[top]:,.0f}, "
        f"then falls to {last:.3g} at step {end}."
    )


def _about_few_rates(facts: Facts, points: Points) -> str:
    """A program that prints the rate between epochs prints it after it has moved on."""
    if points.steps[-1] < facts.step:
        return ""
    last = float(points.values[-1])
    return f" If that is printed after the rate was changed, no step used {last:.3g} any more."
