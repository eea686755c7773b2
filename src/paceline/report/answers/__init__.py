"""All questions of a report, answered from facts. Order and keys are those of `QUESTIONS`.

Whoever trained the run, these are the answers; what its record does not hold they name as missing.
"""

from collections.abc import Callable
from dataclasses import replace

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
from paceline.report.remedies.exchange import exchange, is_asked
from paceline.report.roles.answer import roles, traffic_of_servers


def _traffic(facts: Facts) -> Answer:
    return traffic.traffic(facts) if facts.roles is None else traffic_of_servers(facts)


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
    "traffic": _traffic,
    "cost": cost.cost,
}


def answers(facts: Facts) -> list[Answer]:
    found = [_with_doubts(_ANSWERING[key](facts), facts) for key in QUESTIONS]
    if is_asked(facts):
        found.append(exchange(facts))
    return found if facts.roles is None else [*found, roles(facts, facts.roles)]


def _with_doubts(answer: Answer, facts: Facts) -> Answer:
    """What does not fit comes before the figures that rest on it."""
    doubts = [doubt.text for doubt in facts.doubts if answer.key in doubt.answers]
    if not doubts:
        return answer
    figures = {**answer.figures, "doubts": doubts}
    if all(text in answer.sentence for text in doubts):
        return replace(answer, figures=figures)
    told = f"This does not fit together: {'; '.join(doubts)}."
    return replace(answer, sentence=f"{told} {answer.sentence}", figures=figures)
