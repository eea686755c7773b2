"""The answer about the learning rate: what it did, where it broke off, what its end means."""

from typing import Any

import numpy as np

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.facts.facts import Facts, Seam
from paceline.report.facts.learning import (
    is_below_one_epoch,
    is_settled,
    is_warming_up,
    planned_steps,
)
from paceline.report.facts.trend import Points
from paceline.schedule import (
    ScheduleSettings,
    in_words,
    peak,
    rate_at,
    scale_in_words,
    shape_in_words,
)
from paceline.terminal import sparkline
from paceline.units import count_of, percent

_PLOT_WIDTH = 48
_NUM_PLANNED = 200
_PARTLY_SETTLED = 0.6
_FEW_POINTS = 5
_HOW_RECORDED = "the rate that training wrote down for "


def rate(facts: Facts) -> Answer:
    logged, schedule = facts.rate.logged, facts.rate.schedule
    if len(logged) and (facts.is_own or schedule is None):
        return _by_record(facts, logged)
    if schedule is not None:
        return _by_schedule(facts, schedule)
    if facts.is_own:
        sentence = "Not known: the recipe's schedule cannot be read."
        missing = "a valid `schedule` in recipe.yaml"
        if facts.is_observed:
            sentence, missing = "Not known: no step was recorded.", "steps"
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
    """What was planned: nothing was recorded, or a log does not tell."""
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
    how = "the recipe's formula; nothing was recorded yet" if facts.is_own else facts.rate.how
    return Answer(
        "rate",
        QUESTIONS["rate"],
        f"{_capital(text)}. {_meaning(facts, now * scale, highest * scale)}",
        figures,
        how,
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _by_record(facts: Facts, points: Points) -> Answer:
    """What the steps used, whatever a formula says."""
    top = int(np.argmax(points.values))
    highest, last = float(points.values[top]), float(points.values[-1])
    figures: dict[str, Any] = {
        "peak_rate": highest,
        "peak_step": int(points.steps[top]),
        "rate_at_end": last,
        "rate": points.listed(),
    }
    sentences, missing = [*_policy(facts), *_courses(facts, points)], ""
    if facts.rate.schedule is not None:
        figures["policy"] = facts.rate.schedule.policy
        figures["follows_recipe"] = not (facts.rate.seams or facts.rate.odd_steps)
        figures["seams"] = [vars(seam) for seam in facts.rate.seams]
    if len(points) < _FEW_POINTS and not facts.is_own:
        sentences.append(_about_few_rates(facts, points))
        missing = "its values in between and the policy's name"
    else:
        figures["plot"] = sparkline(points.values.tolist(), _PLOT_WIDTH, low=0.0)
        if highest > 0:
            figures["share_of_peak_at_end"] = last / highest
            sentences.append(_meaning(facts, last, highest))
    sentence = " ".join(filter(None, sentences))
    return Answer("rate", QUESTIONS["rate"], sentence, figures, _how(facts, points), missing)


def _how(facts: Facts, points: Points) -> str:
    if not facts.is_own:
        return facts.rate.how
    known = "every step" if len(points) >= facts.num_steps else "the last step of each line"
    if facts.rate.odd_steps is not None:
        return f"{_HOW_RECORDED}{known}"
    if facts.is_observed:
        return f"the rate of the optimizer's first group at {known}"
    since = " since it went on" if facts.rate.seams else ""
    return f"{_HOW_RECORDED}{known}; compared with the recipe's formula, which it follows{since}"


def _policy(facts: Facts) -> list[str]:
    schedule = facts.rate.schedule
    if schedule is None:
        return []
    highest = peak(schedule, planned_steps(facts))[0]
    return [f"{_capital(shape_in_words(schedule))}{scale_in_words(highest, facts.rate.scale)}."]


def _courses(facts: Facts, points: Points) -> list[str]:
    """Each stretch between two seams, and the seams."""
    told, first = [], 0
    for seam in facts.rate.seams:
        last = int(np.searchsorted(points.steps, seam.last_step, side="right"))
        told += [_course(_part(points, first, last)), _seam(seam)]
        first = last
    told.append(_course(_part(points, first, len(points))))
    if facts.rate.odd_steps is not None:
        begin, end = facts.rate.odd_steps
        told.append(
            f"That is not what the recipe's formula gives (steps {begin:,} to {end:,} differ)."
        )
    return told


def _part(points: Points, first: int, last: int) -> Points:
    return Points(points.steps[first:last], points.values[first:last])


def _seam(seam: Seam) -> str:
    before, after, why = seam.steps_before, seam.steps_after, ""
    if before and after and before != after:
        why = f" (planned for {count_of(before, 'step')} before, for {after:,} after)"
    way = "jumped up" if seam.rate_after > seam.rate_before else "dropped"
    return (
        f"After step {seam.last_step:,} the run went on with another schedule{why}: the rate "
        f"{way} from {seam.rate_before:.3g} to {seam.rate_after:.3g} at step {seam.next_step:,}."
    )


def _course(points: Points) -> str:
    if not len(points):
        return ""
    first, last = float(points.values[0]), float(points.values[-1])
    begin, end = f"{points.steps[0]:,.0f}", f"{points.steps[-1]:,.0f}"
    top = int(np.argmax(points.values))
    highest = float(points.values[top])
    if float(points.values.min()) == highest:
        return f"It was {highest:.3g} from step {begin} to step {end}."
    if top == 0:
        return f"It fell from {first:.3g} at step {begin} to {last:.3g} at step {end}."
    if top == len(points) - 1:
        return f"It rose from {first:.3g} at step {begin} to {last:.3g} at step {end}."
    return (
        f"It rose from {first:.3g} at step {begin} to its peak of {highest:.3g} at step "
        f"{points.steps[top]:,.0f}, then fell to {last:.3g} at step {end}."
    )


def _meaning(facts: Facts, now: float, highest: float) -> str:
    share = now / highest
    ended = "The run is" if facts.reason == "running" else "The run ended"
    at = percent(share) if facts.is_own else f"{now:.3g}, {percent(share)}"
    if not facts.step:
        return "The run has not begun to follow it."
    if _is_before_peak(facts) or is_warming_up(facts):
        return f"{ended} {_before_peak(facts, now, share)}"
    if is_settled(share) and is_below_one_epoch(facts):
        return (
            f"{ended} at {at} of the peak, but before one epoch was over: the rate fell too "
            "early for this model to be trained."
        )
    if is_settled(share):
        return f"{ended} at {at} of the peak: the last steps changed the weights very little."
    if share < _PARTLY_SETTLED:
        return f"{ended} at {at} of the peak: a further fall would still bring something."
    return (
        f"{ended} at {at} of the peak: a fall to near zero usually improves the score, and "
        "this run did not have it."
    )


def _before_peak(facts: Facts, now: float, share: float) -> str:
    """The peak may also lie behind the end of a run that is shorter than its warm-up."""
    where = f"at step {facts.step:,}, before the peak: the rate only rose (to {now:.3g}"
    what = f", {percent(share)} of the peak) and never fell"
    if not _is_before_peak(facts):
        where = "inside of its warm-up: the rate was still rising"
        what = f", which it does for {_warm_up_steps(facts):,} steps, and never fell"
    return f"{where}{what}; a falling rate usually improves the score."


def _warm_up_steps(facts: Facts) -> int:
    return facts.rate.schedule.warmup_steps if facts.rate.schedule is not None else 0


def _is_before_peak(facts: Facts) -> bool:
    """By the plan: what was recorded then has its highest value at the end."""
    schedule = facts.rate.schedule
    return schedule is not None and facts.step < peak(schedule, planned_steps(facts))[1]


def _about_few_rates(facts: Facts, points: Points) -> str:
    """A program that prints the rate between epochs prints it after it has moved on."""
    if points.steps[-1] < facts.step:
        return ""
    last = float(points.values[-1])
    return f"If that is printed after the rate was changed, no step used {last:.3g} any more."
