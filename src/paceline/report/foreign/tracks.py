"""Lines of several processes, or of several runs, in one file: which belong together.

Nothing in a line says which process printed it. But steps only rise: a line that does not continue
any track begins one. Tracks that overlap in the file are processes of one run, printed line by line
or in the blocks of their buffers; a track that begins where another has ended is another run.
"""

from dataclasses import dataclass, field

from paceline.report.foreign.run import Curve, ForeignRun

Position = tuple[int, int]
"""Epoch, and index of the batch in it."""


@dataclass(frozen=True)
class Means:
    """Of one epoch, up to its last printed line."""

    num_steps: int
    step_seconds: float
    input_seconds: float | None


@dataclass
class Track:
    run: ForeignRun
    first_line: int
    last_line: int
    position: Position
    first_index: int = 0
    """Newer versions of the example count batches from 1."""
    epochs: dict[int, Means] = field(default_factory=dict)
    evaluation_seconds: dict[int, float] = field(default_factory=dict)
    """By the step after which it was."""


class Tracks:
    def __init__(self) -> None:
        self.all: list[Track] = []

    def continued_by(self, position: Position, line_number: int) -> Track | None:
        """Of those behind it the one heard last: a dead run is never nearer than a living one."""
        behind = [track for track in self.all if track.position < position]
        track = max(behind, key=lambda track: track.last_line, default=None)
        if track is not None:
            track.position, track.last_line = position, line_number
        return track

    def runs(self) -> list[ForeignRun]:
        return [_joined(group) for group in self._groups()]

    def _groups(self) -> list[list[Track]]:
        groups: list[list[Track]] = []
        for track in self.all:  # in the order of their first lines
            together = [g for g in groups if any(track.first_line < t.last_line for t in g)]
            if together:
                together[-1].append(track)
            else:
                groups.append([track])
        return groups


def _joined(tracks: list[Track]) -> ForeignRun:
    """The curves of the process that got furthest, with what others printed in between."""
    main = max(tracks, key=lambda track: track.run.step)
    run = main.run
    others = [track.run for track in tracks if track is not main]
    for other in others:
        run.scores = _union(run.scores, other.scores)
        run.rate = _union({"": run.rate}, {"": other.rate})[""]
        run.notes += [note for note in other.notes if note not in run.notes]
        run.wall_seconds = run.wall_seconds or other.wall_seconds
        run.wall_how = run.wall_how or other.wall_how
        run.cpu_seconds = run.cpu_seconds or other.cpu_seconds
        run.has_end = run.has_end or other.has_end
    if others:
        run.world, run.world_how = len(tracks), "the processes that printed into the log"
    _sum_times(run, tracks)
    by_step = {step: s for track in tracks for step, s in track.evaluation_seconds.items()}
    run.evaluation_seconds = sum(by_step.values()) or None
    return run


def _union(mine: dict[str, Curve], others: dict[str, Curve]) -> dict[str, Curve]:
    """Every process prints the same value after an evaluation; one is enough."""
    joined = {}
    for name in {**mine, **others}:
        points = {**dict(others.get(name, Curve()).points), **dict(mine.get(name, Curve()).points)}
        joined[name] = Curve()
        for step in sorted(points):
            joined[name].add(step, points[step])
    return joined


def _sum_times(run: ForeignRun, tracks: list[Track]) -> None:
    """Means times counts are exact, however few lines were printed."""
    means = [means for track in tracks for means in track.epochs.values()]
    share = 1 / len(tracks)
    times = run.step_times
    times.num_steps = round(sum(one.num_steps for one in means) * share)
    times.total_seconds = sum(one.num_steps * one.step_seconds for one in means) * share
    waits = [one.num_steps * one.input_seconds for one in means if one.input_seconds is not None]
    if means and len(waits) == len(means):
        times.input_seconds = sum(waits) * share
