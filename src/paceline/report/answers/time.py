"""Answers about time: how long the run took and how long a step is."""

import math
from typing import Any

from paceline.record.schema import PHASE_MEANING
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import listed
from paceline.report.commands import go_on
from paceline.report.facts.durations import idle_seconds
from paceline.report.facts.facts import Facts, StepTimes
from paceline.units import count_of, format_number, format_seconds, percent, plural

_NAMES = {
    "training": "training",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "restart": "steps lost and done again",
    "start_up": "start-up",
    "shut_down": "shut-down",
    "unexplained": "unexplained",
    "rest": "the rest",
    "evaluation_and_rest": "evaluation and the rest",
}
_MANY_EVALUATIONS = 0.2
_MEAN_OFF = 0.02
_SAMPLE_OFF = 0.15
"""Of the mean: from so much on, the printed steps are not like the others."""


def duration(facts: Facts) -> Answer:
    wall = facts.wall_seconds
    if not wall:
        return _nothing_timed(facts)
    per_1000, idle = _seconds_per_1000_steps(facts), idle_seconds(facts.attempts)
    figures: dict[str, Any] = {"wall_seconds": wall, "idle_seconds": idle}
    figures |= {f"{name}_seconds": seconds for name, seconds in facts.booked.items()}
    figures |= {"num_attempts": len(facts.attempts), "num_steps": facts.num_steps}
    if math.isfinite(per_1000):
        figures["seconds_per_1000_steps"] = per_1000
    if not facts.is_own:
        figures["is_estimate"] = facts.is_wall_estimated
        figures["pause_seconds"] = facts.pause_seconds
    left, told = _left(facts, per_1000)
    missing = (
        "this log does not show checkpoints and restarts separately; "
        "`paceline train` counts every second for a phase"
    )
    return Answer(
        "duration",
        QUESTIONS["duration"],
        _duration_sentence(facts, idle, per_1000) + told,
        figures | left,
        facts.wall_how,
        "" if facts.is_own else missing,
        _evaluate_less(facts),
    )


def _nothing_timed(facts: Facts) -> Answer:
    sentence, missing = "The log holds no times.", "a time per step or time stamps"
    if facts.failed_at_start:
        sentence = "It did no step: it failed before."
    if facts.is_own:
        sentence = "Nothing was timed: the run has no events."
        missing = "an attempt that started; `paceline train` writes one"
    return Answer("duration", QUESTIONS["duration"], sentence, missing=missing)


def _seconds_per_1000_steps(facts: Facts) -> float:
    """With the evaluations and saves between them, where those are told apart."""
    parts = ("training", "checkpoint", "evaluation") if facts.is_own else ("training",)
    spent = sum(facts.booked.get(name, 0.0) for name in parts)
    if not spent and facts.step_times is not None and not facts.is_own:
        spent = facts.num_steps * facts.step_times.mean_seconds
    return 1000 * spent / facts.num_steps if facts.num_steps and spent else math.nan


def _duration_sentence(facts: Facts, idle: float, per_1000: float) -> str:
    wall = facts.wall_seconds
    shown = [
        f"{_NAMES[name]} {format_seconds(seconds)} ({percent(seconds / wall)})"
        for name, seconds in facts.booked.items()
        if seconds >= 0.005 * wall or (name == "start_up" and not facts.is_own)
    ]
    attempts = len(facts.attempts)
    tries = f" in {attempts} attempts" if attempts > 1 else ""
    about = "About " if facts.is_wall_estimated else ""
    upto = "" if facts.is_own else f" {_steps_covered(facts)}"
    parts = f": {listed(shown)}" if shown else ""
    text = f"{about}{format_seconds(wall)}{tries}{upto}{parts}."
    if math.isfinite(per_1000):
        text += f" That is {format_seconds(per_1000)} per 1,000 steps, start-up not counted."
    if idle > 1:
        text += f" Between attempts nothing ran for {format_seconds(idle)}."
    return text


def _steps_covered(facts: Facts) -> str:
    if facts.first_step and facts.is_wall_whole:
        shown = f"of which the log shows those from {facts.first_step:,} on"
        return f"for all {facts.step:,} steps, {shown}"
    first = f"from step {facts.first_step:,} to" if facts.first_step else "up to"
    before = ", what was before is not in the log" if facts.first_step else ""
    return f"{first} step {facts.step:,}{before}"


def _left(facts: Facts, per_1000: float) -> tuple[dict[str, Any], str]:
    """What the steps that a log does not show would have taken; a run can go on and show it."""
    num_left = (facts.steps_wanted or 0) - facts.step
    if facts.is_own or num_left <= 0 or not math.isfinite(per_1000):
        return {}, ""
    seconds = num_left * per_1000 / 1000
    told = (
        f" The {count_of(num_left, 'step')} that were not done would take "
        f"{format_seconds(seconds)} more."
    )
    return {"seconds_left": seconds}, told


def _evaluate_less(facts: Facts) -> str:
    every = (facts.settings.get("evaluate") or {}).get("every_steps")
    if not is_evaluated_much(facts) or not isinstance(every, int):
        return ""
    return f"evaluate less often: {go_on(facts.run, f'evaluate.every_steps={4 * every}')}"


def is_evaluated_much(facts: Facts) -> bool:
    """So much that fewer evaluations would be better."""
    return facts.booked.get("evaluation", 0.0) > _MANY_EVALUATIONS * facts.wall_seconds


def step(facts: Facts) -> Answer:
    times = facts.step_times
    if times is None:
        return _no_steps(facts)
    figures: dict[str, Any] = {
        "median_seconds": times.median_seconds,
        "low_seconds": times.low_seconds,
        "high_seconds": times.high_seconds,
        "spread": _spread(times),
        "slowest_seconds": times.slowest and times.slowest.seconds,
        "slowest_step": times.slowest and times.slowest.step,
        "slowest_phase": times.slowest and times.slowest.phase,
        "num_steps": times.num_steps,
    }
    if times.units_per_second is not None:
        figures |= {"units_per_second": times.units_per_second, "unit": plural(facts.unit)}
    if not facts.is_own:
        figures |= {
            "mean_seconds": times.mean_seconds,
            "is_sample": times.is_sample,
            "num_timings": times.num_timings,
            "steps_per_timing": times.steps_per_timing,
        }
    missing = "" if facts.is_own else _missing_of_steps(times)
    return Answer(
        "step",
        QUESTIONS["step"],
        _step_sentence(facts, times) + _throughput(facts, times),
        figures,
        times.how,
        missing,
    )


def _no_steps(facts: Facts) -> Answer:
    sentence = "The log does not tell how long a step took."
    missing = "a time per step; PyTorch's example for pictures prints one as `Time`"
    if facts.is_own:
        sentence = "No step was recorded."
        missing = "at least one line of steps in the events of the first process"
    return Answer("step", QUESTIONS["step"], sentence, missing=missing)


def _spread(times: StepTimes) -> float | None:
    if times.low_seconds is None or times.high_seconds is None:
        return None
    return (times.high_seconds - times.low_seconds) / max(times.median_seconds, 1e-12)


def _step_sentence(facts: Facts, times: StepTimes) -> str:
    of = " timings" if times.steps_per_timing > 1 or not facts.is_own else " steps"
    if times.is_sample:
        return _sample_sentence(facts, times)
    if not facts.is_own and not times.num_timings:
        return f"{format_seconds(times.mean_seconds)}, the mean over {times.num_steps:,} steps."
    text = f"{format_seconds(times.median_seconds)} (the median of {times.num_timings:,}{of})"
    if times.low_seconds is not None and times.high_seconds is not None:
        low, high = format_seconds(times.low_seconds), format_seconds(times.high_seconds)
        text += f"; 90 % took between {low} and {high}"
    text += "."
    if not facts.is_own and abs(times.mean_seconds / times.median_seconds - 1) > _MEAN_OFF:
        mean = format_seconds(times.mean_seconds)
        text += f" The mean over {count_of(times.num_steps, 'step')} is {mean}."
    if times.slowest is not None:
        text += f" The slowest took {format_seconds(times.slowest.seconds)}{_slowest(facts)}."
    if times.steps_per_timing > 1:
        text += f" Each timing is the mean of {times.steps_per_timing:,} steps."
    return text


def _throughput(facts: Facts, times: StepTimes) -> str:
    """What a foreign log says of it; an own run has a table of its own."""
    if facts.is_own or not times.units_per_second:
        return ""
    return f" That is {format_number(times.units_per_second)} {plural(facts.unit)} a second."


def _sample_sentence(facts: Facts, times: StepTimes) -> str:
    """Single printed times may be those of every second, slow step."""
    text = (
        f"{format_seconds(times.mean_seconds)}, the mean over {times.num_steps:,} steps. The "
        f"{count_of(times.num_timings, 'single time')} that the log prints are a sample: their "
        f"median is {format_seconds(times.median_seconds)}"
    )
    if times.low_seconds is not None and times.high_seconds is not None:
        low, high = format_seconds(times.low_seconds), format_seconds(times.high_seconds)
        text += f", 90 % of them are between {low} and {high}"
    if abs(times.median_seconds - times.mean_seconds) > _SAMPLE_OFF * times.mean_seconds:
        text += (
            ". So the printed steps are not like the others: with several loader workers, each "
            "batch of a slow worker is waited for, and lines may show only those steps"
        )
    slowest = times.slowest
    worst = f" The slowest of them took {format_seconds(slowest.seconds)}" if slowest else ""
    return f"{text}.{worst}{_slowest(facts)}." if worst else f"{text}."


def _slowest(facts: Facts) -> str:
    """Which it was, and the phase in which it lost most against the usual."""
    times = facts.step_times
    if times is None or times.slowest is None:
        return ""
    found = times.slowest
    if times.steps_per_timing > 1:
        begin = found.step - times.steps_per_timing + 1
        return f" (the mean of steps {begin:,} to {found.step:,})"
    if found.phase is not None:
        where = " in the steps around it" if found.is_by_neighbours else ""
        return (
            f" (step {found.step:,}), because of {found.phase}{where}: "
            f"{format_seconds(found.extra_seconds)} more than usual ({PHASE_MEANING[found.phase]})"
        )
    per_epoch = facts.data.steps_per_epoch
    if per_epoch and found.step % per_epoch == 1:
        return f" (step {found.step:,}, the first of an epoch, when the loader starts)"
    return f" (step {found.step:,})"


def _missing_of_steps(times: StepTimes) -> str:
    if times.is_sample:
        return "the steps between the lines, each by itself, and why one was slow"
    if times.steps_per_timing > 1:
        return f"single slow steps: the log prints means of {times.steps_per_timing:,}"
    return "why a step was slow: the log does not split each step into phases"
