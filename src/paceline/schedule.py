"""Learning-rate policies: the rate is a pure function of the step, so nothing has to be stored.

Steps are counted from 1. Settings are in `ScheduleSettings`; there is no torch here, because the
report draws the same curve that training used.
"""

import math
from typing import Literal

from pydantic import PositiveInt, ValidationInfo, field_validator

from paceline.config import Section, refuse_together, setting

Policy = Literal[
    "fixed", "piecewise", "exponential", "polynomial", "cosine", "transformer", "one-cycle"
]


class ScheduleSettings(Section):
    policy: Policy = setting("fixed", "how the rate changes over the run")
    rate: float = setting(0.1, "peak rate; 'transformer': the factor of its formula", gt=0)
    warmup_steps: int = setting(0, "steps of linear rise to the rate (any policy)", ge=0)
    warmup_from: float = setting(0.0, "share of the rate at which the warm-up begins", ge=0, le=1)
    boundaries: list[PositiveInt] = setting(
        [], "piecewise: after these steps the rate is multiplied"
    )
    factor: float = setting(0.1, "piecewise, exponential: multiplier", gt=0)
    decay_steps: int = setting(1000, "exponential: steps for one multiplication", gt=0)
    power: float = setting(1.0, "polynomial: 1 is a straight line", gt=0)
    final: float = setting(0.0, "polynomial, cosine, one-cycle: share of the rate at the end", ge=0)
    peak_at: float = setting(0.25, "one-cycle: share of the run at which it peaks", gt=0, lt=1)
    width: int | None = setting(
        None, "transformer: the model's width, for the formula", gt=0, validate_default=True
    )
    scaling: Literal["none", "linear", "sqrt"] = setting(
        "none", "how the rate follows the global batch when it differs from reference_batch"
    )
    reference_batch: int | None = setting(
        None, "the global batch for which the rate was chosen", gt=0, validate_default=True
    )

    @field_validator("boundaries")
    @classmethod
    def _boundaries_rise(cls, boundaries: list[int]) -> list[int]:
        if sorted(set(boundaries)) != boundaries:
            raise ValueError("must rise")
        return boundaries

    @field_validator("width")
    @classmethod
    def _width_for_the_formula(cls, width: int | None, info: ValidationInfo) -> int | None:
        if width is None and info.data.get("policy") == "transformer":
            refuse_together(
                "the transformer policy needs the model's width, e.g. 512", "policy", "width"
            )
        return width

    @field_validator("reference_batch")
    @classmethod
    def _batch_to_scale_from(cls, batch: int | None, info: ValidationInfo) -> int | None:
        if batch is None and info.data.get("scaling", "none") != "none":
            refuse_together(
                f"{info.data['scaling']} scaling needs the global batch that the rate was chosen "
                "for, e.g. 128",
                "scaling",
                "reference_batch",
            )
        return batch


def batch_scale(schedule: ScheduleSettings, global_batch: int) -> float:
    """Goyal et al. 2017: k times the batch takes k times the rate; Adam users prefer the root."""
    if schedule.scaling == "none" or not schedule.reference_batch:
        return 1.0
    ratio = global_batch / schedule.reference_batch
    return ratio if schedule.scaling == "linear" else math.sqrt(ratio)


def rate_at(schedule: ScheduleSettings, step: int, steps: int) -> float:
    """The rate that the step-th optimizer step uses (before scaling by the batch)."""
    if schedule.policy == "transformer":
        width = schedule.width or 1
        warmup = max(schedule.warmup_steps, 1)
        return float(schedule.rate * width**-0.5 * min(step**-0.5, step * warmup**-1.5))
    rate = schedule.rate * _decay(schedule, step, steps)
    if step <= schedule.warmup_steps:
        begin = schedule.warmup_from
        rate *= begin + (1 - begin) * step / schedule.warmup_steps
    return rate


def _decay(schedule: ScheduleSettings, step: int, steps: int) -> float:
    after_warmup = step - schedule.warmup_steps
    # The end is reached just after the last step: a last step at rate 0 would be wasted.
    progress = min(max((after_warmup - 1) / max(steps - schedule.warmup_steps, 1), 0.0), 1.0)
    match schedule.policy:
        case "piecewise":
            return math.pow(schedule.factor, sum(step > b for b in schedule.boundaries))
        case "exponential":
            return math.pow(schedule.factor, max(after_warmup, 0) / schedule.decay_steps)
        case "polynomial":
            return _between(schedule.final, math.pow(1 - progress, schedule.power))
        case "cosine":
            return _between(schedule.final, 0.5 * (1 + math.cos(math.pi * progress)))
        case "one-cycle":
            return _one_cycle(schedule, step, steps)
        case _:
            return 1.0


def _one_cycle(schedule: ScheduleSettings, step: int, steps: int) -> float:
    top = peak_step(schedule, steps)
    if step <= top:
        return step / top
    return _between(schedule.final, max(steps + 1 - step, 0) / (steps + 1 - top))


def peak_step(schedule: ScheduleSettings, steps: int) -> int:
    return max(1, round(schedule.peak_at * steps))


def _between(final: float, share: float) -> float:
    return final + (1 - final) * share


def peak(schedule: ScheduleSettings, steps: int) -> tuple[float, int]:
    """The highest rate of the run and the first step that has it."""
    corners = [schedule.warmup_steps, *schedule.boundaries, peak_step(schedule, steps), steps]
    between = _top_of_a_long_warm_up(schedule, steps)
    candidates = {1} | {step + shift for step in [*corners, *between] for shift in (0, 1)}
    inside = sorted(step for step in candidates if 1 <= step <= steps)
    best = max(inside, key=lambda step: (rate_at(schedule, step, steps), -step))
    return rate_at(schedule, best, steps), best


def _top_of_a_long_warm_up(schedule: ScheduleSettings, steps: int) -> list[int]:
    """A warm-up that outlasts the rise of a cycle: two straight lines multiply to a parabola."""
    fall = (1 - schedule.final) / (steps + 1 - peak_step(schedule, steps))
    rise = (1 - schedule.warmup_from) / max(schedule.warmup_steps, 1)
    if schedule.policy != "one-cycle" or fall <= 0 or rise <= 0:
        return []
    zero_of_fall = steps + 1 + schedule.final / fall
    zero_of_rise = -schedule.warmup_from / rise
    top = math.floor((zero_of_fall + zero_of_rise) / 2)
    return [top - 1, top]


def short_warm_up(schedule: ScheduleSettings, steps: int) -> str | None:
    """That a run would end inside of its warm-up, and which one would fit; None if it does not."""
    if schedule.warmup_steps < steps:
        return None
    return (
        f"the learning rate rises for {schedule.warmup_steps:,} steps (schedule.warmup_steps), and "
        f"the run has {steps:,}: it never reaches its peak, and never falls. Train longer, or set "
        f"schedule.warmup_steps={max(steps // 10, 1)}"
    )


def in_words(schedule: ScheduleSettings, steps: int, scale: float = 1.0) -> str:
    """One sentence that says what the rate does, with its peak (times `batch_scale`)."""
    highest, where = peak(schedule, steps)
    top = f"peak {highest * scale:.3g}{scale_in_words(highest, scale)} at step {where:,}"
    return f"{shape_in_words(schedule)}; {top} of {steps:,}"


def scale_in_words(highest: float, scale: float) -> str:
    return f" ({highest:.3g} x {scale:.3g} for the batch)" if scale != 1 else ""


def shape_in_words(schedule: ScheduleSettings) -> str:
    """The policy's name and the form of its curve, without figures of a run."""
    body = {
        "fixed": "does not change",
        "piecewise": f"is multiplied by {schedule.factor:g} after steps "
        + (", ".join(f"{b:,}" for b in schedule.boundaries) or "(none)"),
        "exponential": f"is multiplied by {schedule.factor:g} every {schedule.decay_steps:,} steps",
        "polynomial": f"falls to {schedule.final:g} of its peak with power {schedule.power:g}",
        "cosine": f"falls along a cosine to {schedule.final:g} of its peak",
        "transformer": "rises linearly, then falls with the inverse square root of the step",
        "one-cycle": f"rises for {100 * schedule.peak_at:.0f} % of the run, "
        "then falls in a straight line",
    }[schedule.policy]
    warm = f"rises over {schedule.warmup_steps:,} steps, then " if schedule.warmup_steps else ""
    warm = "" if schedule.policy == "transformer" else warm
    return f"{schedule.policy}: {warm}{body}"
