"""When a run must stop itself: a loss that is not finite, or that has left for good."""

import math

from paceline.errors import UserError
from paceline.train.state import Progress

_SMOOTHING = 0.98  # about the last 50 steps: one bad batch is not divergence


class LossError(UserError):
    """The run cannot go on; nothing was overwritten."""


def watch_loss(progress: Progress, loss: float, factor: float) -> str | None:
    """Follow the smoothed loss; a sentence when it shows that the run is lost."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if progress.first_loss is None or progress.smooth_loss is None:
        progress.first_loss = progress.smooth_loss = loss
    progress.smooth_loss = _SMOOTHING * progress.smooth_loss + (1 - _SMOOTHING) * loss
    if factor and progress.smooth_loss > factor * max(progress.first_loss, 1e-3):
        return (
            f"the loss diverged: {progress.smooth_loss:.3g} over the last steps, "
            f"{progress.first_loss:.3g} at the start"
        )
    return None


def lost(problem: str, step: int, rate: float, last_good: str | None) -> LossError:
    kept = f"the last good checkpoint is {last_good}" if last_good else "there is no checkpoint yet"
    return LossError(
        f"{problem}, at step {step:,} with a learning rate of {rate:.4g}; {kept}",
        "lower schedule.rate, lengthen schedule.warmup_steps or set optimizer.clip_norm, then go "
        "on from the last good checkpoint with the same command",
    )
