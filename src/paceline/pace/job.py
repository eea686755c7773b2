"""What the model knows of a training job: few physical figures, each with its source. Pure data."""

from dataclasses import dataclass
from typing import Final

MEASURED: Final = 0.02
"""Relative uncertainty of what a run of this very job told: two runs differ by as much."""


@dataclass(frozen=True)
class Figure:
    """A number, how uncertain it is (relative standard deviation), and who says so."""

    value: float
    spread: float
    source: str


GLOO_OVERLAP: Final = Figure(0.5, 0.5, "measured with Gloo on CPUs; see docs/model.md")
NCCL_OVERLAP: Final = Figure(0.8, 0.3, "assumed of NCCL, which sends beside the kernels")
GLOO_EXCHANGE: Final = Figure(1.5e-9, 0.5, "measured with Gloo on CPUs; see docs/model.md")
NCCL_EXCHANGE: Final = Figure(0.02e-9, 0.5, "the memory of a device, far faster than any wire")


@dataclass(frozen=True)
class Link:
    """The way from each host to the others."""

    bits_per_second: Figure
    """Of the line; a little less of it carries payload."""
    latency_seconds: Figure
    burst_bits_per_second: float | None = None
    """What a rented machine may send for some minutes; a run of hours gets the other."""


@dataclass(frozen=True)
class Schedule:
    """How much there is to do, and what is done between steps."""

    steps: int
    start_up_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    """Of one evaluation."""
    evaluate_every: int | None = None
    save_seconds: float = 0.0
    """That the loop stands still for one save."""
    save_every: int | None = None


@dataclass(frozen=True)
class Job:
    unit: str
    units_per_step: float
    """Of the world in which it was measured."""
    grows_with_world: bool
    """Whether each process keeps its share of the batch, so that more of them do more a step."""
    measured_processes: int
    devices_per_host: int
    compute: Figure
    """Seconds of forward and backward for one unit on one process."""
    update: Figure
    """Seconds of the optimizer in a step: the same on every process, however many there are."""
    gradient_bytes: Figure | None
    """That each process gives to the all-reduce; None where nobody told."""
    overlap: Figure
    """Share of the backward pass of the last micro-batch during which sending is free."""
    exchange: Figure
    """Seconds that a byte of gradients costs beside the wire: copies and sums."""
    jitter: Figure
    """Standard deviation of a process's step, as a share of it: the slowest sets the pace."""
    network: Figure = Figure(1.0, 0.1, "nobody measured the exchange of this job")
    """What was waited for others in a measured run, as a multiple of what the formulas say."""
    input_rate: Figure | None = None
    """Units a second that the loader of one process gives; None where it was never waited for."""
    input_wait: float = 0.0
    """Seconds of a step that are waited for a batch though the loader is fast enough."""
    micro_batches: int | None = None
    """In a step, so that no more processes can share it."""
    num_parameters: int | None = None
    checkpoint_bytes: float | None = None
    flops_per_unit: float | None = None
    schedule: Schedule | None = None
    named: str = ""
    """The run or recipe that it stands for."""
