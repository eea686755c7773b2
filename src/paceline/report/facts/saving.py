"""What one checkpoint costs the loop, how sure that is, and what another frequency would cost.

A save takes from the loop the time of copying tensors, of waiting for the save before if that is
not written yet, and what the steps beside the writing thread take longer than others.
"""

import math
from dataclasses import dataclass

import numpy as np

from paceline.report.facts.facts import CheckpointCost, Facts

_LEAST_SAVES = 3
"""From fewer no spread can be told."""


@dataclass(frozen=True)
class SaveCost:
    """Means over the saves after which training went on."""

    seconds: float
    error_seconds: float | None
    """Twice the standard error; None where there are too few saves to tell."""
    num_saves: int
    copy_seconds: float | None = None
    wait_seconds: float = 0.0
    slowed_seconds: float | None = None
    write_seconds: float = 0.0


def cost_of_save(cost: CheckpointCost) -> SaveCost | None:
    """None where no save was followed by a step."""
    if cost.saves:
        return _by_saves(cost)
    num_tried = cost.num_saves + cost.num_failed
    stood_still = cost.stall_seconds - cost.end_seconds
    if not num_tried or stood_still <= 0:
        return None
    return SaveCost(
        stood_still / num_tried, None, num_tried, write_seconds=cost.background_seconds / num_tried
    )


def _by_saves(cost: CheckpointCost) -> SaveCost:
    each = np.array([save.cost_seconds for save in cost.saves])
    slowed = [save.slowed_seconds for save in cost.saves if save.slowed_seconds is not None]
    is_enough = len(each) >= _LEAST_SAVES
    error = 2 * float(each.std(ddof=1)) / math.sqrt(len(each)) if is_enough else None
    copied = float(np.mean([save.copy_seconds for save in cost.saves]))
    waited = float(np.mean([save.wait_seconds for save in cost.saves]))
    # Beside a writing thread no step gets faster: a mean below zero is noise of the steps.
    slower = max(float(np.mean(slowed)), 0.0) if slowed else None
    return SaveCost(
        seconds=copied + waited + (slower or 0.0),
        error_seconds=error,
        num_saves=len(each),
        copy_seconds=copied,
        wait_seconds=waited,
        slowed_seconds=slower,
        write_seconds=float(np.mean([save.write_seconds for save in cost.saves])),
    )


def step_seconds_without_saves(facts: Facts) -> float:
    """Of the loop, without standing still for checkpoints."""
    return facts.verdict.step_seconds * (1 - facts.verdict.shares.get("checkpoint", 0.0))


def seconds_at(facts: Facts, one: SaveCost, every_steps: int) -> float:
    """What a save would take from the loop at another frequency: one that comes before the last
    is written has to wait for it."""
    if every_steps == facts.saving.every_steps:
        return one.seconds
    without = max(one.seconds - one.wait_seconds, 0.0)
    left_to_write = one.write_seconds - every_steps * step_seconds_without_saves(facts)
    return without + max(left_to_write, 0.0)


def share_of_loop(facts: Facts, every_steps: int, save_seconds: float) -> float:
    between = every_steps * step_seconds_without_saves(facts)
    return save_seconds / (save_seconds + between) if between else math.nan


def other_frequencies(every_steps: int) -> list[int]:
    """Ten times as often and a tenth as often, but not the one that was used."""
    return [n for n in (every_steps // 10, every_steps * 10) if n >= 1 and n != every_steps]
