"""All questions of a report, answered from a summary. Order and keys are those of `QUESTIONS`."""

from collections.abc import Callable

from paceline.report import (
    answers_cost,
    answers_files,
    answers_machine,
    answers_rate,
    answers_time,
    answers_traffic,
    answers_training,
    answers_verdict,
)
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.summary import Summary

_ANSWERING: dict[str, Callable[[Summary], Answer]] = {
    "duration": answers_time.duration,
    "trained": answers_training.trained,
    "overfitting": answers_training.overfitting,
    "busy": answers_machine.busy,
    "network": answers_machine.network,
    "input": answers_machine.input_,
    "verdict": answers_verdict.verdict,
    "rate": answers_rate.rate,
    "data": answers_files.data,
    "checkpoint": answers_files.checkpoint,
    "step": answers_time.step,
    "traffic": answers_traffic.traffic,
    "cost": answers_cost.cost,
}


def answers(summary: Summary) -> list[Answer]:
    return [_ANSWERING[key](summary) for key in QUESTIONS]
