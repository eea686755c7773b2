"""Three runs and more: how fast each was against the smallest, and what of perfect scaling."""

import math
from dataclasses import dataclass

from paceline.report.speed import MOST_GAIN, Speed
from paceline.units import count_of, percent

_LEAST_RUNS = 3
_BAR = 30


@dataclass(frozen=True)
class ScalingPoint:
    run: str
    num_processes: int
    speed_up: float
    """Against the run with the fewest processes."""
    efficiency: float
    """Of perfect scaling: the speed-up divided by how many times as many processes there were."""
    is_believed: bool
    """More than perfect scaling has another cause."""


def scaling_of(speeds: list[Speed]) -> list[ScalingPoint]:
    """Empty unless at least three runs are known, of at least two sizes."""
    known = [s for s in speeds if s.is_world_known and math.isfinite(s.units_per_second)]
    if len(known) < _LEAST_RUNS or len({speed.world_size for speed in known}) < 2:
        return []
    base = min(known, key=lambda speed: speed.world_size)
    points = []
    for speed in sorted(known, key=lambda speed: speed.world_size):
        speed_up = speed.units_per_second / base.units_per_second
        efficiency = speed_up * base.world_size / speed.world_size
        is_believed = efficiency <= MOST_GAIN
        points.append(ScalingPoint(speed.run, speed.world_size, speed_up, efficiency, is_believed))
    return points


def scaling_rows(points: list[ScalingPoint]) -> list[list[str]]:
    """A bar is as long as the efficiency; the first row is the heading."""
    rows = [["scaling", "processes", "speed-up", "efficiency", ""]]
    for point in points:
        bar = "#" * max(round(_BAR * min(point.efficiency, 1.0)), 1)
        doubt = "" if point.is_believed else " more than perfect: not believed"
        share = percent(point.efficiency)
        rows.append(
            [point.run, f"{point.num_processes:,}", f"{point.speed_up:.2f}", share, bar + doubt]
        )
    return rows


def scaling_sentence(points: list[ScalingPoint]) -> str:
    """Where adding processes stopped paying."""
    if not points:
        return ""
    last = points[-1]
    told = (
        f"From {count_of(points[0].num_processes, 'process')} to {last.num_processes:,} the speed "
        f"grew {last.speed_up:.2f} times, a scaling efficiency of {percent(last.efficiency)}"
    )
    if not all(point.is_believed for point in points):
        return f"{told}; more than perfect scaling is not believed, so something else differs too."
    best = max(points, key=lambda point: point.speed_up)
    if best.num_processes < last.num_processes and best.speed_up > last.speed_up:
        return f"{told}; {best.run} with {count_of(best.num_processes, 'process')} was the fastest."
    return f"{told}."
