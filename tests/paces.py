"""Jobs and links for tests of the model: plain figures, with or without doubt."""

from dataclasses import replace

from paceline.pace.job import NCCL_COPYING, RING, TREE, Exchange, Figure, Job, Link

PARAMETERS = 60.8e6
GRADIENTS = 4 * PARAMETERS
NCCL = Exchange(copying=NCCL_COPYING, algorithms=(RING, TREE))


def figure(value: float, spread: float = 0.0) -> Figure:
    return Figure(value, spread, "a test")


def job(**changes: object) -> Job:
    """A Transformer of 60.8 M parameters on V100s: 1.2 s for forward and backward of a step."""
    usual = Job(
        unit="token",
        units_per_step=4096,
        grows_with_world=False,
        measured_processes=4,
        devices_per_host=1,
        compute=figure(1.2 / 1024, 0.02),
        update=figure(0.01, 0.02),
        gradient_bytes=figure(GRADIENTS),
        jitter=figure(0.02, 0.5),
        exchange=NCCL,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def link(bits_per_second: float, spread: float = 0.03) -> Link:
    return Link(figure(bits_per_second, spread), figure(50e-6, 0.5))
