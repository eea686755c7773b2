"""All questions of a report, answered from facts. Order and keys are those of `QUESTIONS`.

Whoever trained the run, these are the answers; what its record does not hold they name as missing.
"""

from collections.abc import Callable

from paceline.report.answers import (
    busy,
    cost,
    files,
    input,
    network,
    overfitting,
    rate,
    time,
    traffic,
    trained,
    verdict,
)
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.facts.facts import Facts

_ANSWERING: dict[str, Callable[[Facts], Answer]] = {
    "duration": time.duration,
    "trained": trained.trained,
    "overfitting": overfitting.overfitting,
    "busy": busy.busy,
    "network": network.network,
    "input": input.input_,
    "verdict": verdict.verdict,
    "rate": rate.rate,
    "data": files.data,
    "checkpoint": files.checkpoint,
    "step": time.step,
    "traffic": traffic.traffic,
    "cost": cost.cost,
}


def answers(facts: Facts) -> list[Answer]:
    return [_ANSWERING[key](facts) for key in QUESTIONS]
