"""When a run must stop itself, because its loss is lost or a process is out of memory; and a first
look at whether its hosts are worth it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.errors import UserError
from paceline.record.phases import PhaseClock
from paceline.record.schema import COMPUTE, EVALUATE, INPUT, NETWORK, OPTIMIZER, START_UP
from paceline.train.input import PhaseTotals
from paceline.train.state import Progress
from paceline.world import World

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


def lost(problem: str, step: int, rate: float, precision: str, last_good: str | None) -> LossError:
    kept = f"the last good checkpoint is {last_good}" if last_good else "there is no checkpoint yet"
    numbers = " in fp16" if precision == "fp16" else ""
    wider = "train in precision=fp32, " if precision == "fp16" else ""
    return LossError(
        f"{problem}, at step {step:,}{numbers} with a learning rate of {rate:.4g}; {kept}",
        f"{wider}lower schedule.rate, lengthen schedule.warmup_steps or set optimizer.clip_norm, "
        "then go on from the last good checkpoint with the same command",
    )


_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "not enough memory",
    "bad_alloc",
    "memoryerror",
    "status_alloc_failed",  # of cuBLAS and cuDNN
)


def is_lack_of_memory(error: BaseException) -> bool:
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY)


@contextmanager
def naming_lack_of_memory(
    world: World, micro: int | None, clock: PhaseClock | None = None
) -> Iterator[None]:
    """Say which process of which host is out of memory and what helps: doing it again does not."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        phase = (clock.failed_in if clock else None) or START_UP
        raise UserError(
            f"rank {world.rank} on {world.host} is out of memory{_whose(world)}, in {phase}: "
            f"{str(error).partition(chr(10))[0] or 'no memory left'}",
            _smaller(world, micro, phase),
        ) from error


def _whose(world: World) -> str:
    return f" on its device {world.device}" if world.device.type == "cuda" else ""


def _smaller(world: World, micro: int | None, phase: str) -> str:
    """What takes less of it. `batch.micro` cuts the data, so a run cannot go on with another."""
    first = ""
    if phase == EVALUATE:
        first = "lower evaluate.batch and go on with the same command; if that is not enough, "
    now = f" (now {micro})" if micro else ""
    instead = (
        ", or take a device with more memory"
        if world.device.type == "cuda"
        else ", or start fewer processes on that host (--procs)"
    )
    return (
        f"{first}lower batch.micro{now}, the samples of one forward pass, and begin anew with "
        f"another --run: the batch of a step stays the same{instead}"
    )


class FirstGlimpse:
    """Of the first steps of an attempt, what one of them spent on its own work and on waiting for
    others: whoever pays for several hosts learns soon that one is faster."""

    _NUM_STEPS = 10

    def __init__(
        self,
        phases: PhaseTotals,
        num_steps: Callable[[], int],
        tell: Callable[[float, float], None],
    ) -> None:
        """`num_steps`: how many `phases` has. Of a device both are known when its stamps were read:
        before that, a host that runs ahead would tell how long it queues."""
        self._phases, self._num_steps, self._tell = phases, num_steps, tell
        self._before, self._steps_before = phases.totals(), num_steps()
        self._is_over = False

    def after_step(self) -> None:
        num = self._num_steps() - self._steps_before
        if self._is_over or num < self._NUM_STEPS:
            return
        self._is_over = True
        now = self._phases.totals()
        spent = {n: (s - self._before.get(n, 0.0)) / num for n, s in now.items()}
        busy = sum(spent.get(name, 0.0) for name in (INPUT, COMPUTE, OPTIMIZER))
        self._tell(busy, spent.get(NETWORK, 0.0))
