"""What the log of another tool says about a run, as plain data.

Whatever the tool, its reader fills one `ForeignRun`; what the log does not say stays None or empty.
No file is read here and nothing is judged.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.report.foreign.curve import Curve


@dataclass
class StepTimes:
    """How long steps took. Sums are exact, although of very many timings only some are kept."""

    how: str = ""
    """How the tool measured a step."""
    steps_per_timing: int = 1
    """1 when single steps were timed, more when a timing is the mean of so many."""
    curve: Curve = field(default_factory=Curve)
    slowest: tuple[int, float] | None = None
    num_steps: int = 0
    total_seconds: float = 0.0
    input_seconds: float | None = None
    """Of the total, the part spent waiting for the next batch."""

    def add(self, step: int, seconds: float) -> None:
        self.curve.add(step, seconds)
        if self.slowest is None or seconds > self.slowest[1]:
            self.slowest = (step, seconds)

    @property
    def mean_seconds(self) -> float | None:
        return self.total_seconds / self.num_steps if self.num_steps else None

    @property
    def input_share(self) -> float | None:
        if self.input_seconds is None or not self.total_seconds:
            return None
        return min(self.input_seconds / self.total_seconds, 1.0)


@dataclass
class ForeignRun:
    path: Path
    tool: str
    began: str = ""
    """Date and time of the first stamp, by whatever clock the log was written."""
    step: int = 0
    """The last step that the log shows."""
    steps_wanted: int | None = None
    print_every_steps: int | None = None
    has_end: bool = False
    """The log says that the program ended by itself."""

    training_loss: Curve = field(default_factory=Curve)
    validation_loss: Curve = field(default_factory=Curve)
    training_scores: dict[str, Curve] = field(default_factory=dict)
    scores: dict[str, Curve] = field(default_factory=dict)
    """On validation data, by the name of the measure, the most important first."""
    rate: Curve = field(default_factory=Curve)

    step_times: StepTimes = field(default_factory=StepTimes)
    wall_seconds: float | None = None
    wall_how: str = ""
    start_up_seconds: float | None = None
    evaluation_seconds: float | None = None
    pause_seconds: float | None = None
    """Gaps between steps in which something else was done: evaluation, checkpoints."""
    cpu_seconds: float | None = None
    """Processor time of the main process alone."""

    world: int | None = None
    world_how: str = ""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    batch_per_process: int | None = None
    global_batch: int | None = None
    batch_how: str = ""
    steps_per_epoch: int | None = None
    num_parameters: int | None = None
    gradient_bytes_each: int = 4
    gradient_how: str = "4 bytes for each, as 32-bit gradients take"

    link_bits_per_second: float | None = None
    """Between the hosts; no log tells it, so the user does."""
    price_per_hour: float | None = None
    """Of one host; likewise."""

    config: dict[str, Any] = field(default_factory=dict)
    """Settings that the tool printed."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the log should know and no answer would say."""
