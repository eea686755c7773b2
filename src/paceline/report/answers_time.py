"""Answers about time: how long the run took and how long a step is."""

import math
from typing import Any

import numpy as np

from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    PHASE_MEANING,
    PHASES,
    RESTART,
    SHUT_DOWN,
    START_UP,
    UNEXPLAINED,
)
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.summary import Summary
from paceline.report.wording import go_on, listed, percent
from paceline.units import count_of, format_seconds, plural

_TRAINING = (INPUT, COMPUTE, NETWORK, OPTIMIZER)
_NAMES = {
    "training": "training proper",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "restart": "steps lost and done again",
    "start_up": "start-up",
    "shut_down": "shut-down",
    "unexplained": "unexplained",
}


def booked(summary: Summary) -> dict[str, float]:
    """Seconds by purpose; they add up to the wall time."""
    phases = summary.story.phases
    return {
        "training": sum(phases.get(phase, 0.0) for phase in _TRAINING),
        "evaluation": phases.get(EVALUATE, 0.0),
        "checkpoint": phases.get(CHECKPOINT, 0.0),
        "restart": phases.get(RESTART, 0.0),
        "start_up": phases.get(START_UP, 0.0),
        "shut_down": phases.get(SHUT_DOWN, 0.0),
        "unexplained": phases.get(UNEXPLAINED, 0.0),
    }


def idle_seconds(summary: Summary) -> float:
    """Between attempts, when nothing ran."""
    spans = sorted((a.started, a.ended) for a in summary.story.attempts if a.started is not None)
    idle, busy_until = 0.0, math.inf
    for started, ended in spans:
        idle += max(started - busy_until, 0.0)
        busy_until = ended if busy_until == math.inf else max(busy_until, ended)
    return idle


def duration(summary: Summary) -> Answer:
    wall = summary.story.wall_seconds
    if not wall:
        return Answer(
            "duration",
            QUESTIONS["duration"],
            "Nothing was timed: the run has no events.",
            missing="an attempt that started; `paceline train` writes one",
        )
    parts, idle = booked(summary), idle_seconds(summary)
    num_steps = int(summary.curves.total("num_steps"))
    training_and_saves = parts["training"] + parts["checkpoint"] + parts["evaluation"]
    per_1000 = 1000 * training_and_saves / num_steps if num_steps else math.nan
    figures: dict[str, Any] = {"wall_seconds": wall, "idle_seconds": idle}
    figures |= {f"{name}_seconds": seconds for name, seconds in parts.items()}
    figures |= {"num_attempts": len(summary.story.attempts), "num_steps": num_steps}
    if num_steps:
        figures["seconds_per_1000_steps"] = per_1000
    return Answer(
        "duration",
        QUESTIONS["duration"],
        _duration_sentence(summary, parts, idle, per_1000),
        figures,
        "every process books each moment to one phase by a clock that nobody can set; "
        "the first process is told here",
        remedy=_evaluate_less(summary, parts, wall),
    )


def _duration_sentence(
    summary: Summary, parts: dict[str, float], idle: float, per_1000: float
) -> str:
    wall = summary.story.wall_seconds
    shown = [
        f"{_NAMES[name]} {format_seconds(seconds)} ({percent(seconds / wall)})"
        for name, seconds in parts.items()
        if seconds >= 0.005 * wall
    ]
    attempts = len(summary.story.attempts)
    tries = f" in {attempts} attempts" if attempts > 1 else ""
    text = f"{format_seconds(wall)}{tries}: {listed(shown)}."
    if math.isfinite(per_1000):
        text += f" That is {format_seconds(per_1000)} per 1,000 steps, start-up not counted."
    if idle > 1:
        text += f" Between attempts nothing ran for {format_seconds(idle)}."
    return text


def _evaluate_less(summary: Summary, parts: dict[str, float], wall: float) -> str:
    every = (summary.settings.get("evaluate") or {}).get("every_steps")
    if parts["evaluation"] < 0.2 * wall or not isinstance(every, int):
        return ""
    return f"evaluate less often: {go_on(summary.run, f'evaluate.every_steps={4 * every}')}"


def step(summary: Summary) -> Answer:
    times = summary.step_times
    if times is None:
        return Answer(
            "step",
            QUESTIONS["step"],
            "No step was recorded.",
            missing="at least one line of steps in the events of the first process",
        )
    slow = _slowest(summary)
    unit = plural(str(summary.facts.get("unit", "unit")))
    spread = (times.high_seconds - times.low_seconds) / max(times.median_seconds, 1e-12)
    sentence = (
        f"{format_seconds(times.median_seconds)} in the median of {times.num_steps:,}; 90 % take "
        f"between {format_seconds(times.low_seconds)} and {format_seconds(times.high_seconds)}. "
        f"The slowest took {format_seconds(times.slowest_seconds)}{slow['text']}."
    )
    return Answer(
        "step",
        QUESTIONS["step"],
        sentence,
        {
            "median_seconds": times.median_seconds,
            "low_seconds": times.low_seconds,
            "high_seconds": times.high_seconds,
            "spread": spread,
            "slowest_seconds": times.slowest_seconds,
            "slowest_step": slow.get("step"),
            "slowest_phase": slow.get("phase"),
            "num_steps": times.num_steps,
            "units_per_second": times.units_per_second,
            "unit": unit,
        },
        "a clock around every step of the first process; evaluations and saves between steps are "
        "not in it",
    )


def _slowest(summary: Summary) -> dict[str, Any]:
    """The slowest step and the phase in which it lost most against the usual."""
    if summary.slowest:
        found = summary.slowest[0]
        phases = {k: float(v) for k, v in (found.get("phases") or {}).items() if k in PHASES}
        return _why_slow(summary, int(found["step"]), phases, "")
    curves = summary.curves
    place = int(np.argmax(curves.step_seconds))
    ends = np.cumsum(curves["num_step_seconds"])
    row = int(np.searchsorted(ends, place, side="right"))
    count = max(float(curves["num_steps"][row]), 1.0)
    of_row = place - (ends[row] - curves["num_step_seconds"][row])
    number = int(curves["step"][row] - curves["num_step_seconds"][row] + 1 + of_row)
    phases = {k: float(v) / count for k, v in zip(PHASES, curves.phases[row], strict=True)}
    return _why_slow(summary, number, phases, " in the steps around it")


def _why_slow(
    summary: Summary, number: int, phases: dict[str, float], where: str
) -> dict[str, Any]:
    curves = summary.curves
    usual = np.median(curves.phases / curves["num_steps"][:, None], axis=0)
    extras = {
        name: phases.get(name, 0.0) - float(usual[PHASES.index(name)])
        for name in PHASES
        if name not in (EVALUATE, START_UP)
    }
    phase = max(extras, key=lambda name: extras[name])
    text = f" (step {number:,})"
    if extras[phase] > 0.2 * max(float(usual.sum()), 1e-9):
        text += (
            f", because of {phase}{where}: {format_seconds(extras[phase])} more than usual "
            f"({PHASE_MEANING[phase]})"
        )
        return {"step": number, "phase": phase, "text": text}
    return {"step": number, "phase": None, "text": text}


def attempts_told(summary: Summary) -> str:
    return count_of(len(summary.story.attempts), "attempt")
