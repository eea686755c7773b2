"""How long another tool's run took, how long its steps were, and how long they waited for input."""

from statistics import quantiles
from typing import Any

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.foreign.ring import typical_step_seconds
from paceline.report.foreign.run import ForeignRun
from paceline.report.verdict import LEAST_SHARE
from paceline.report.wording import percent
from paceline.units import format_seconds


def duration(run: ForeignRun) -> Answer:
    question = QUESTIONS["duration"]
    training = run.step_times.total_seconds
    if run.wall_seconds is None and not training:
        return Answer(
            "duration",
            question,
            "The log holds no times.",
            missing="a time per step or time stamps",
        )
    mean = run.step_times.mean_seconds
    is_sum = run.wall_seconds is None
    wall = run.wall_seconds or training + (run.start_up_seconds or 0.0)
    figures: dict[str, Any] = {
        "wall_seconds": wall,
        "is_estimate": is_sum,
        "training_seconds": training or None,
        "start_up_seconds": run.start_up_seconds,
        "pause_seconds": run.pause_seconds,
        "evaluation_seconds": run.evaluation_seconds,
        "seconds_per_1000_steps": 1000 * mean if mean else None,
    }
    sentence = f"{'About ' * is_sum}{format_seconds(wall)} up to step {run.step:,}"
    sentence += _parts_of_duration(run, wall)
    if mean:
        sentence += f"; 1,000 steps take {format_seconds(1000 * mean)}"
    if mean and run.steps_wanted and run.steps_wanted > run.step:
        left = (run.steps_wanted - run.step) * mean
        figures["seconds_left"] = left
        sentence += (
            f", so the {run.steps_wanted - run.step:,} that were not done would take "
            f"{format_seconds(left)} more"
        )
    how = run.wall_how or "the printed times of all steps, and of the start-up, added up"
    return Answer(
        "duration",
        question,
        sentence + ".",
        figures,
        how=how,
        missing="checkpoints and restarts are not told apart in this log; "
        "`paceline train` books every second to a phase",
    )


def _parts_of_duration(run: ForeignRun, wall: float) -> str:
    training = run.step_times.total_seconds
    parts = []
    if run.start_up_seconds:
        parts.append(f"{format_seconds(run.start_up_seconds)} of start-up")
    if training:
        parts.append(f"{format_seconds(training)} of training")
    rest = wall - training - (run.start_up_seconds or 0.0)
    if training and rest > 0.005 * wall:
        parts.append(f"{format_seconds(rest)} of evaluation and the rest")
    return f": {', '.join(parts)}" if parts else ""


def step(run: ForeignRun) -> Answer:
    question = QUESTIONS["step"]
    times = run.step_times
    typical = typical_step_seconds(run)
    if typical is None:
        return Answer(
            "step",
            question,
            "The log does not tell how long a step took.",
            missing="a time per step; the PyTorch ImageNet example prints one as `Time`",
        )
    values = [seconds for _, seconds in times.curve.points]
    figures: dict[str, Any] = {
        "median_seconds": typical,
        "mean_seconds": times.mean_seconds,
        "num_timings": times.curve.num_points,
        "steps_per_timing": times.steps_per_timing,
    }
    sentence = f"A step takes {format_seconds(typical)} (median)"
    if len(values) >= 4:
        low, *_, high = quantiles(values, n=20, method="inclusive")
        figures |= {"low_seconds": low, "high_seconds": high}
        sentence += f", 90 % between {format_seconds(low)} and {format_seconds(high)}"
    if times.slowest is not None:
        figures["slowest_step"], figures["slowest_seconds"] = times.slowest
        sentence += f"; the slowest, {format_seconds(times.slowest[1])}, {_slowest_where(run)}"
    missing = "why a step was slow: the log does not split each step into phases"
    if times.steps_per_timing > 1:
        sentence += f". Each timing is the mean of {times.steps_per_timing:,} steps"
        missing = f"single slow steps: the log prints means of {times.steps_per_timing:,}"
    return Answer("step", question, sentence + ".", figures, how=times.how, missing=missing)


def _slowest_where(run: ForeignRun) -> str:
    """The first step of an epoch waits for the loader to start, which is worth saying."""
    assert run.step_times.slowest is not None  # noqa: S101
    where = run.step_times.slowest[0]
    if run.step_times.steps_per_timing > 1:
        begin = where - run.step_times.steps_per_timing + 1
        return f"was the mean of steps {begin:,} to {where:,}"
    if run.steps_per_epoch and where % run.steps_per_epoch == 1:
        return f"was step {where:,}, the first of an epoch, when the loader starts"
    return f"was step {where:,}"


def input_wait(run: ForeignRun) -> Answer:
    question = QUESTIONS["input"]
    share, mean = run.step_times.input_share, run.step_times.mean_seconds
    if share is None or mean is None:
        return Answer(
            "input",
            question,
            "The log does not tell how long a step waited for its batch.",
            missing="the time from the end of a step to the next batch (`Data` in the PyTorch "
            "ImageNet example, `data_time` elsewhere); `paceline train` measures it always",
        )
    rest = mean * (1 - share)
    figures = {
        "input_share": share,
        "input_seconds_per_step": mean * share,
        "step_seconds": mean,
        "without_input_seconds": rest,
    }
    begin = "Yes" if share >= LEAST_SHARE else "No"
    sentence = (
        f"{begin}: {percent(share)} of the step is input wait, {format_seconds(mean * share)} of "
        f"{format_seconds(mean)}; on infinitely fast input a step would take {format_seconds(rest)}"
    )
    if rest > 0 and share >= LEAST_SHARE:
        figures["speed_up_without_input"] = mean / rest
        sentence += f", {mean / rest:.1f} times faster"
    how = f"the mean of the waits that the log prints, over {run.step_times.num_steps:,} steps"
    return Answer("input", question, sentence + ".", figures, how=how)
