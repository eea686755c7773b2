"""Lines of several processes, or of several runs, in one file: which belong together.

A launcher may put the rank before a line. Where it does not, steps only rise: a line that does not
continue any track begins one. Tracks that overlap in the file are of one run, printed line by line
or in the blocks of their buffers; if no step is in two of them, they are one process whose lines
are out of order. A track that begins where another has ended is another run, unless it fills what
the other left out.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.report.foreign.run import Curve, ForeignRun, RankTimes

Position = tuple[int, int]
"""Epoch, and index of the batch in it."""
Meters = dict[str, tuple[float, float]]

_EPOCH_BITS = 42
_NEIGHBOURS = 2
"""Lines between a line and the same line once more."""


@dataclass(frozen=True)
class Means:
    """Of one epoch, up to its last printed line."""

    num_steps: int
    step_seconds: float
    input_seconds: float | None


@dataclass
class Track:
    run: ForeignRun
    last_line: int
    position: Position
    first_index: int = 0
    """Newer versions of the example count batches from 1."""
    who: str = ""
    """As the prefix of a launcher says it."""
    first_line: int = -1
    meters: Meters = field(default_factory=dict)
    """Of the last line."""
    has_data: bool = False
    places: "array[int]" = field(default_factory=lambda: array("q"))
    """Every position that was printed, as one number."""
    epochs: dict[int, Means] = field(default_factory=dict)
    evaluation_seconds: dict[int, float] = field(default_factory=dict)
    """By the step after which it was."""

    def move_to(self, position: Position, line_number: int) -> None:
        self.position, self.last_line = position, line_number
        self.places.append((position[0] << _EPOCH_BITS) + position[1])


class Tracks:
    def __init__(self) -> None:
        self.all: list[Track] = []

    def begin(self, track: Track) -> None:
        track.first_line = track.last_line
        track.move_to(track.position, track.last_line)
        self.all.append(track)

    def has_just_seen(
        self, position: Position, meters: Meters, line_number: int, who: str = ""
    ) -> bool:
        """Two processes never measure the same in every column."""
        recent = line_number - len(self.all) - _NEIGHBOURS
        return any(
            track.position == position
            and track.last_line >= recent
            and track.who == who
            and track.meters == meters
            for track in self.all
        )

    def is_alone(self, track: Track) -> bool:
        """Whether no other process has printed since it began."""
        return all(track is other or other.last_line < track.first_line for other in self.all)

    def continued_by(
        self, position: Position, meters: Meters, line_number: int, who: str = ""
    ) -> Track | None:
        """Of those behind it the one heard last: a dead run is never nearer than a living one.
        Of several that live, the one whose running means are the nearest."""
        behind = [track for track in self.all if track.position < position and track.who == who]
        track = max(behind, key=lambda track: track.last_line, default=None)
        if len(behind) > 1 and track is not None:
            begun = max(other.first_line for other in self.all)
            living = [other for other in behind if other.last_line >= begun] or [track]
            track = min(living, key=lambda one: (_distance(one.meters, meters), -one.last_line))
        if track is not None:
            track.move_to(position, line_number)
        return track

    def runs(self) -> list[ForeignRun]:
        return [_joined(_processes(group)) for group in self._groups()]

    def _groups(self) -> list[list[Track]]:
        groups: list[list[Track]] = []
        for track in self.all:  # in the order of their first lines
            together = [group for group in groups if _is_of(group, track)]
            if together:
                together[-1].append(track)
            else:
                groups.append([track])
        return groups


def _distance(one: Meters, other: Meters) -> float:
    """Between what two lines say of the mean wait and the mean step."""
    shared = [name for name in ("Data", "Time") if name in one and name in other]
    return sum(abs(one[name][1] - other[name][1]) for name in shared)


def _is_of(group: Sequence[Track], track: Track) -> bool:
    if any(track.first_line < other.last_line for other in group):
        return True
    if track.who and all(other.who and other.who != track.who for other in group):
        return group[0].places[0] == track.places[0]  # another rank, which came to the file later
    # A run that was started again prints steps that were there: others are lines out of order.
    of_same = [other for other in group if other.who == track.who]
    return any(_begins_inside(track, other) for other in of_same) and not any(
        _overlap(track, other) for other in of_same
    )


def _begins_inside(track: Track, other: Track) -> bool:
    return other.places[0] < track.places[0] < other.places[-1]


def _processes(tracks: Sequence[Track]) -> list[Track]:
    """Tracks of one process have no step in common; what they hold is put together."""
    processes: list[Track] = []
    for track in tracks:
        fitting = (one for one in processes if one.who == track.who and not _overlap(one, track))
        process = next(fitting, None)
        if process is None:
            processes.append(track)
        else:
            _put_into(process, track)
    return processes


def _overlap(one: Track, other: Track) -> bool:
    places = np.frombuffer(one.places, np.int64), np.frombuffer(other.places, np.int64)
    return bool(np.isin(*places).any())


def _put_into(process: Track, track: Track) -> None:
    process.places = array("q", sorted([*process.places, *track.places]))
    for epoch, means in track.epochs.items():
        known = process.epochs.get(epoch)
        if known is None or known.num_steps < means.num_steps:
            process.epochs[epoch] = means
    process.evaluation_seconds |= track.evaluation_seconds
    mine, theirs = process.run, track.run
    for name in ("training_loss", "validation_loss"):
        joined = _union({"": getattr(mine, name)}, {"": getattr(theirs, name)})[""]
        joined.not_finite_from = getattr(mine, name).not_finite_from
        setattr(mine, name, joined)
    mine.training_scores = _union(mine.training_scores, theirs.training_scores)
    mine.step_times.curve = _union({"": mine.step_times.curve}, {"": theirs.step_times.curve})[""]
    mine.step_times.slowest = max(
        (s for s in (mine.step_times.slowest, theirs.step_times.slowest) if s is not None),
        key=lambda slowest: slowest[1],
        default=None,
    )
    mine.step = max(mine.step, theirs.step)
    mine.print_every_steps = mine.step_times.curve.spacing
    _take_what_is_said_once(mine, theirs)


def _joined(processes: list[Track]) -> ForeignRun:
    """The curves of the process that got furthest, with what others printed in between."""
    main = max(processes, key=lambda track: track.run.step)
    run = main.run
    for other in processes:
        if other is not main:
            _take_what_is_said_once(run, other.run)
    by_step = {step: s for track in processes for step, s in track.evaluation_seconds.items()}
    run.evaluation_seconds = sum(by_step.values()) or None
    _fill_times(run, main)
    if len(processes) > 1:
        run.world, run.world_how = len(processes), "the processes that printed into the log"
        run.ranks = [_rank_times(n, process) for n, process in enumerate(processes)]
        slowest = max((rank.input_share or 0.0 for rank in run.ranks), default=0.0)
        if run.step_times.input_seconds is not None:
            run.step_times.input_seconds = slowest * run.step_times.total_seconds
    return run


def _take_what_is_said_once(run: ForeignRun, other: ForeignRun) -> None:
    run.scores = _union(run.scores, other.scores)
    run.rate = _union({"": run.rate}, {"": other.rate})[""]
    run.notes += [note for note in other.notes if note not in run.notes]
    run.wall_seconds = run.wall_seconds or other.wall_seconds
    run.wall_how = run.wall_how or other.wall_how
    run.cpu_seconds = run.cpu_seconds or other.cpu_seconds
    run.has_end = run.has_end or other.has_end
    run.failure = run.failure or other.failure


def _union(mine: dict[str, Curve], others: dict[str, Curve]) -> dict[str, Curve]:
    """Every process prints the same value after an evaluation; one is enough."""
    joined = {}
    for name in {**mine, **others}:
        points = {**dict(others.get(name, Curve()).points), **dict(mine.get(name, Curve()).points)}
        joined[name] = Curve()
        for step in sorted(points):
            joined[name].add(step, points[step])
    return joined


def _fill_times(run: ForeignRun, main: Track) -> None:
    times = run.step_times
    own = _rank_times(0, main)
    times.num_steps, times.total_seconds = own.num_steps, own.total_seconds
    times.input_seconds = own.input_seconds
    first = min(main.epochs, default=0)
    if first and run.steps_per_epoch:
        # The mean of an epoch is over all of its steps, also over those before the first line.
        run.first_step = first * run.steps_per_epoch + 1


def _rank_times(number: int, process: Track) -> RankTimes:
    """Means times counts are exact, however few lines were printed."""
    means = list(process.epochs.values())
    waits = [one.num_steps * one.input_seconds for one in means if one.input_seconds is not None]
    return RankTimes(
        name=f"rank {process.who}" if process.who.isdecimal() else process.who or str(number + 1),
        num_steps=sum(one.num_steps for one in means),
        total_seconds=sum(one.num_steps * one.step_seconds for one in means),
        input_seconds=sum(waits) if means and len(waits) == len(means) else None,
    )


_AFTER_INDEX = r"\s*(\d+)\s*/{}\s*\]\s*Time[ :=]+(\d+\.\d+)\s*\("
_SHORTER = 6
"""Characters that a line may lack against another: one that lacks more is torn."""


class Skim:
    """Long logs: the lines of one track in one epoch, of which only the place and the time of a
    step are looked at. A curve keeps evenly some of very many points, so the others need not be
    parsed, and of running means the last of an epoch counts, which is never lost."""

    def __init__(self, track: Track, line: str, begin: str, num_batches: int) -> None:
        """`begin` is what every line has before the index of its batch."""
        self.track = track
        self._least_length = len(line) - _SHORTER
        self.num_passed = 0
        self.last_line = ""
        self._match = re.compile(re.escape(begin) + _AFTER_INDEX.format(num_batches)).match
        self._num_batches = num_batches
        self._epoch, self._index = track.position
        curve = track.run.step_times.curve
        self._until_kept = -curve.num_points % curve.stride

    def passes_over(self, line: str, line_number: int) -> bool:
        """Whether the line is one more of these and no curve would keep its point."""
        if self.num_passed >= self._until_kept or len(line) < self._least_length:
            return False
        if not (match := self._match(line)):
            return False
        index = int(match[1])
        if not self._index < index <= self._num_batches or "nan" in line or "inf" in line:
            return False
        self._index, self.last_line = index, line
        self.num_passed += 1
        track, times = self.track, self.track.run.step_times
        track.move_to((self._epoch, index), line_number)
        seconds = float(match[2])
        if times.slowest is not None and seconds > times.slowest[1]:
            step = self._epoch * self._num_batches + index + 1 - track.first_index
            times.slowest = (step, seconds)
        return True

    def count_passed(self) -> None:
        """All but the last, which is parsed after all."""
        run = self.track.run
        curves = [run.step_times.curve, run.training_loss, run.rate, *run.training_scores.values()]
        in_step = run.step_times.curve.num_points
        for curve in curves:
            if curve.num_points == in_step:
                curve.num_points += self.num_passed - 1
