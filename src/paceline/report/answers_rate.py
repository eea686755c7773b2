"""The answer about the learning rate: policy, peak, and what its end means for the run."""

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.summary import Summary
from paceline.report.wording import percent
from paceline.schedule import ScheduleSettings, batch_scale, in_words, peak, rate_at
from paceline.terminal import sparkline


def rate(summary: Summary) -> Answer:
    ask = QUESTIONS["rate"]
    try:
        schedule = ScheduleSettings.model_validate(summary.settings.get("schedule", {}))
    except ValueError:
        return Answer(
            "rate",
            ask,
            "Not known: the recipe's schedule cannot be read.",
            missing="a valid `schedule` in recipe.yaml",
        )
    steps = max(int(summary.settings.get("steps", 1)), 1)
    scale = batch_scale(schedule, batch) if (batch := global_batch(summary)) else 1.0
    highest, where = peak(schedule, steps)
    plan = [rate_at(schedule, 1 + n * (steps - 1) // 199, steps) * scale for n in range(200)]
    now = rate_at(schedule, max(summary.step, 1), steps)
    text = in_words(schedule, steps, scale)
    sentence = f"{text[0].upper()}{text[1:]}. {_rate_means(summary, now / highest, where)}"
    return Answer(
        "rate",
        ask,
        sentence,
        {
            "policy": schedule.policy,
            "peak_rate": highest * scale,
            "peak_step": where,
            "rate_at_end": now * scale,
            "share_of_peak_at_end": now / highest,
            "plot": sparkline(plan, 48, low=0.0),
        },
        "the recipe's formula, which training follows step by step",
    )


def _rate_means(summary: Summary, share: float, where: int) -> str:
    if not summary.step:
        return "The run has not begun to follow it."
    if summary.step < where:
        return f"The run ended while the rate was still rising, at {percent(share)} of the peak."
    if share < 0.1:
        return f"The run ended at {percent(share)} of the peak, so the weights had settled."
    if share < 0.6:
        return (
            f"The run ended at {percent(share)} of the peak: partly settled, the last fall is "
            "still to be had."
        )
    return (
        f"The run ended at {percent(share)} of the peak: ending here gives away what a fall to "
        "near zero usually brings."
    )


def global_batch(summary: Summary) -> int | None:
    batch = summary.settings.get("batch") or {}
    world_size = summary.facts.get("world_size") or 0
    return batch.get("global") or (batch.get("per_device") or 0) * world_size or None
