"""What a ring all-reduce of a run's gradients sends, and how long that takes. Pure arithmetic."""

from dataclasses import dataclass
from statistics import median

from paceline.report.foreign.run import ForeignRun
from paceline.units import format_bytes, format_count


@dataclass(frozen=True)
class Ring:
    """Each of N processes sends 2(N-1)/N times the gradients to its neighbour, once a step.

    Neighbours on one host talk through memory; the ring leaves each host once, so this is also what
    goes through each host's link.
    """

    world: int
    num_parameters: int
    bytes_each: int

    @property
    def gradient_bytes(self) -> int:
        return self.num_parameters * self.bytes_each

    @property
    def sent_bytes(self) -> float:
        return 2 * (self.world - 1) / self.world * self.gradient_bytes

    def seconds(self, link_bits_per_second: float) -> float:
        return 8 * self.sent_bytes / link_bits_per_second

    def in_words(self) -> str:
        return (
            f"a ring all-reduce over {self.world} processes sends 2 x "
            f"{self.world - 1}/{self.world} "
            f"of the {format_bytes(self.gradient_bytes)} of gradients "
            f"({format_count(self.num_parameters)} parameters x {self.bytes_each} bytes), "
            f"{format_bytes(self.sent_bytes)}, through each host's link in every step"
        )


def ring_of(run: ForeignRun) -> Ring | None:
    if not run.num_parameters or not run.world or run.world < 2 or len(run.hosts) == 1:
        return None
    return Ring(run.world, run.num_parameters, run.gradient_bytes_each)


def typical_step_seconds(run: ForeignRun) -> float | None:
    """The median timing; a slow first step or an evaluation between two lines does not move it."""
    points = run.step_times.curve.points
    return median(seconds for _, seconds in points) if points else run.step_times.mean_seconds


def network_share(run: ForeignRun) -> float | None:
    """The part of a step that the ring all-reduce must take on the given link."""
    ring, step_seconds = ring_of(run), typical_step_seconds(run)
    if ring is None or not step_seconds or not run.link_bits_per_second:
        return None
    return ring.seconds(run.link_bits_per_second) / step_seconds
