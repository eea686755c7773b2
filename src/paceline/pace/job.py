"""What the model knows of a training job: few physical figures, each with its source. Pure data."""

from dataclasses import dataclass
from typing import Final, Literal

MEASURED: Final = 0.02
"""Relative uncertainty of what a run of this very job told: two runs differ by as much."""


@dataclass(frozen=True)
class Figure:
    """A number, how uncertain it is (relative standard deviation), and who says so."""

    value: float
    spread: float
    source: str


@dataclass(frozen=True)
class Link:
    """The way from each host to the others."""

    bits_per_second: Figure
    """Of the line; a little less of it carries payload."""
    latency_seconds: Figure
    """Of one message, from one process to the next: the wire, the kernels, waking up."""
    burst_bits_per_second: float | None = None
    """What a rented machine may send for some minutes; a run of hours gets the other."""


RING: Final = "ring"
TREE: Final = "tree"
BUCKET_BYTES: Final = 25 * 1024 * 1024
"""DDP sends gradients in buckets of this size ..."""
FIRST_BUCKET_BYTES: Final = 1024 * 1024
"""... but for the first, which is on its way early."""
INSIDE_BYTES_PER_SECOND: Final = 10e9
"""Between the devices of a host, where nothing better is known: PCI Express 3."""

GLOO_COPYING: Final = Figure(1.2e-9, 0.4, "measured with Gloo; see docs/model.md")
NCCL_COPYING: Final = Figure(2e-12, 0.5, "the memory of a device, far faster than any wire")


@dataclass(frozen=True)
class Part:
    """Gradients that are ready at one moment."""

    num_bytes: float
    ready: float
    """Share of a pass (forward and backward) after which they can be sent."""


Lasts = Literal["backward", "next forward", "steps"]


@dataclass(frozen=True)
class Exchange:
    """How gradients go around, and what of it backward hides."""

    copying: Figure = GLOO_COPYING
    """Seconds of a processor for each byte that is sent: copies, sums, the kernel's work."""
    processors: float = 1.0
    """That a process keeps busy: what copying takes, it takes from them."""
    parts: tuple[Part, ...] = ()
    """When gradients are ready, as measured; evenly over the backward pass where nobody did."""
    parts_how: str = "assumed: evenly over the backward pass"
    bucket_bytes: float = BUCKET_BYTES
    algorithms: tuple[str, ...] = (RING,)
    """Of the library; the fastest is taken."""
    inside_bytes_per_second: float = INSIDE_BYTES_PER_SECOND
    sent_share: float = 1.0
    """Of the gradients' bytes: what is compressed is less."""
    every_steps: float = 1.0
    """Gradients, or weights, are exchanged once in so many steps."""
    lasts: Lasts = "backward"
    """Until when sending may go on beside other work: to the end of backward, through the update
    and the next forward pass (where weights are waited for as they are needed), or for steps."""
    coding: Figure = Figure(0.0, 0.0, "nothing is compressed")
    """Seconds of a process for each byte of gradients: to compress it and back."""

    @property
    def is_on_processors(self) -> bool:
        return self.copying.source == GLOO_COPYING.source


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


AS_IT_IS: Final = Figure(1.0, 0.0, "as it is")


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
    jitter: Figure
    """Standard deviation of a process's step, as a share of it: the slowest sets the pace."""
    exchange: Exchange = Exchange()
    network: Figure = Figure(1.0, 0.05, "nobody measured the exchange of this job")
    """What was waited for others in a measured run, as a multiple of what the formulas say."""
    input_rate: Figure | None = None
    """Units a second that the loader of one process gives; None where it was never waited for."""
    fixed: Figure = Figure(0.0, 0.0, "passes are as large as they were measured")
    """Share of a measured pass that stays when a process gets fewer units: launches of kernels."""
    input_times: Figure = AS_IT_IS
    """A remedy: by which factor the loader is faster than it was."""
    compute_times: Figure = AS_IT_IS
    """A remedy: by which factor forward and backward are faster than they were."""
    input_wait: float = 0.0
    """Seconds of a measured step that were waited for batches though the loader is fast enough:
    they are made, or fetched, between passes."""
    micro_batches: int | None = None
    """In a step, so that no more processes can share it."""
    num_parameters: int | None = None
    checkpoint_bytes: float | None = None
    flops_per_unit: float | None = None
    precision: str = ""
    """Of forward and backward, where that is known."""
    schedule: Schedule | None = None
    samples_growth: float = 1.0
    """How many times as many samples the same quality needs when the batch of a step doubles."""
    named: str = ""
    """The run or recipe that it stands for."""
