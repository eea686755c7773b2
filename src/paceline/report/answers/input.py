"""Was the input pipeline the bottleneck."""

from typing import Any

from paceline.record.schema import INPUT
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import HOW_PHASES, times_as_fast
from paceline.report.facts.facts import Facts
from paceline.report.facts.verdict import LEAST_SHARE
from paceline.units import count_of, format_seconds, percent


def input_(facts: Facts) -> Answer:
    ask, found = QUESTIONS["input"], facts.verdict
    if facts.is_observed and found.step_seconds and "loader" not in facts.begin:
        return _without_loader()
    if facts.is_own and not found.step_seconds:
        return Answer("input", ask, "No step was recorded.", missing="steps")
    if INPUT not in found.shares and any("input" in doubt.answers for doubt in facts.doubts):
        return Answer("input", ask, "It cannot be told.", missing="facts that fit together")
    if INPUT not in found.shares:
        return Answer(
            "input",
            ask,
            "The log does not tell how long a step waited for its batch.",
            missing="the time from the end of a step to the next batch (`Data` in PyTorch's "
            "example for pictures, `data_time` elsewhere); `paceline train` measures it always",
        )
    return _recorded(facts) if facts.is_own else _of_log(facts)


def _without_loader() -> Answer:
    return Answer(
        "input",
        QUESTIONS["input"],
        "Not known: the script reads its data without torch's DataLoader, so that the time it "
        "takes counts as compute.",
        missing="a torch.utils.data.DataLoader, whose batches can be timed",
    )


def _without_input(step_seconds: float, fastest: float) -> str:
    return (
        f"If input took no time at all, a step would take {format_seconds(fastest)} instead of "
        f"{format_seconds(step_seconds)} ({times_as_fast(step_seconds, fastest)})."
    )


def _recorded(facts: Facts) -> Answer:
    found, workers = facts.verdict, facts.loader_workers
    share, fastest = found.shares[INPUT], found.without_input_seconds
    noun = "worker process" if facts.is_observed else "loader thread"
    threads = f" with {count_of(workers, noun)} per process" if workers else ""
    sentence = (
        f"{'Yes' if found.word == INPUT else 'No'}: the loop waited for its next batch "
        f"{percent(share)} of the time{threads}. {_without_input(found.step_seconds, fastest)}"
    )
    if facts.loader_note:
        sentence += f" What the loader noted: {facts.loader_note}."
    figures: dict[str, Any] = {
        "share": share,
        "step_seconds": found.step_seconds,
        "without_input_seconds": fastest,
        "loader_workers": workers,
    }
    return Answer("input", QUESTIONS["input"], sentence, figures, HOW_PHASES)


def _of_log(facts: Facts) -> Answer:
    """By means over all steps, which the log's sums give exactly."""
    share, times = facts.verdict.shares[INPUT], facts.step_times
    mean = times.mean_seconds if times is not None else 0.0
    rest = mean * (1 - share)
    figures: dict[str, Any] = {
        "input_share": share,
        "input_seconds_per_step": mean * share,
        "step_seconds": mean,
        "without_input_seconds": rest,
    }
    if rest > 0:
        figures["speed_up_without_input"] = mean / rest
    sentence = (
        f"{'Yes' if share >= LEAST_SHARE else 'No'}: {percent(share)} of the step is input wait, "
        f"{format_seconds(mean * share)} of {format_seconds(mean)}. {_without_input(mean, rest)}"
    )
    if len(facts.world.rank_inputs) > 1:
        figures["input_share_by_rank"] = {r.name: r.input_share for r in facts.world.rank_inputs}
        sentence += " This is the process that waits longest: the others wait for it."
    num_steps = times.num_steps if times is not None else 0
    how = f"the mean of the waits that the log prints, over {count_of(num_steps, 'step')}"
    return Answer("input", QUESTIONS["input"], sentence, figures, how)
