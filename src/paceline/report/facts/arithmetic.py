"""What a run multiplied in: whether its devices have something lighter, and how fp16 bore it."""

import re

import numpy as np

from paceline.machine.arithmetic import Capability, best_precision
from paceline.record.columns import StepColumns
from paceline.record.events import Event
from paceline.report.facts.busyness import is_on_cuda
from paceline.report.facts.facts import Facts

AUTOCAST = {
    "bf16": 'torch.autocast("cuda", dtype=torch.bfloat16)',
    "fp16": 'torch.autocast("cuda", dtype=torch.float16) with a GradScaler',
}
"""What a script writes for it."""
_SETTLING_STEPS = 100
"""The scale starts high and is meant to halve until gradients no longer overflow."""
_FALLEN = 16.0
"""Four halvings that nothing made good: it doubles after every 2,000 steps without overflow."""


def used_precision(facts: Facts) -> str | None:
    """As recorded; of runs that did not record it, what the recipe says."""
    found = facts.begin.get("precision") or facts.settings.get("precision")
    return str(found) if found else None


def could_be_lighter(facts: Facts) -> bool:
    """Whether `precision=auto` may be faster on the devices that the run had."""
    if not _is_fp32_on_cuda(facts):
        return False
    capability = _parsed(str(facts.begin.get("compute_capability", "")))
    return capability is None or best_precision(capability) != "fp32"


def lighter_precision(facts: Facts) -> str | None:
    """What the run's devices are known to have and it did not use, by name."""
    capability = _parsed(str(facts.begin.get("compute_capability", "")))
    if capability is None or not _is_fp32_on_cuda(facts):
        return None
    best = best_precision(capability)
    return None if best == "fp32" else best


def _is_fp32_on_cuda(facts: Facts) -> bool:
    return is_on_cuda(facts) and used_precision(facts) == "fp32"


def _parsed(text: str) -> Capability | None:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text)
    return (int(match[1]), int(match[2])) if match else None


def arithmetic_warnings(rows: StepColumns, begins: list[Event]) -> list[str]:
    return [*_fallen_scale(rows), *_other_precisions(begins)]


def _fallen_scale(rows: StepColumns) -> list[str]:
    scales, steps = rows["loss_scale"], rows["step"]
    known = np.isfinite(scales) & (steps > _SETTLING_STEPS)
    scales, steps = scales[known], steps[known]
    if not len(scales):
        return []
    top = int(np.argmax(scales))
    highest, last = float(scales[top]), float(scales[-1])
    if last >= 1 and last * _FALLEN > highest:
        return []
    return [
        f"the loss scale of fp16 fell from {highest:g} at step {steps[top]:,.0f} to {last:g} at "
        f"step {steps[-1]:,.0f}: gradients overflow again and again, and each such step is "
        "skipped, which often comes before divergence. Lower schedule.rate or set "
        "optimizer.clip_norm, or train in precision=fp32"
    ]


def _other_precisions(begins: list[Event]) -> list[str]:
    used = [str(begin["precision"]) for begin in begins if "precision" in begin]
    changes = [name for n, name in enumerate(used) if n == 0 or name != used[n - 1]]
    if len(changes) < 2:
        return []
    return [f"its attempts were trained in different precisions: {', then '.join(changes)}"]
