"""Several runs in one log, and several logs of one run: which belong together.

Resumed runs become one, of others the longest is told about; processes that stepped together are
one run.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.report.foreign.run import Curve, ForeignRun, RankTimes
from paceline.units import count_of

_SAME_PACE = 0.03
_SAME_LOSS = 0.25
"""Of what the loss had fallen: a run that goes on begins nearer to where the other was."""
_MOST_NAMED = 5


class Gathering:
    """Runs one after another, of which only the one to tell about is kept whole."""

    def __init__(self) -> None:
        self._groups: list[list[_Told]] = []
        """Each is a run: one process, or several that stepped together."""
        self._chosen: ForeignRun | None = None
        self._chosen_group: list[_Told] = []
        self._last: ForeignRun | None = None
        self._last_group: list[_Told] = []

    def add(self, run: ForeignRun) -> None:
        if self._last is not None and _resumes(run, self._last):
            joined = _join(self._last, run)
            if self._chosen is self._last:
                self._chosen = joined
            self._last_group[-1] = _Told.of(joined)
            self._last = joined
        else:
            self._last, self._last_group = run, self._group_for(_Told.of(run))
        if self._chosen is None or _length(self._last) > _length(self._chosen):
            self._chosen, self._chosen_group = self._last, self._last_group

    def _group_for(self, told: "_Told") -> "list[_Told]":
        group = next((g for g in self._groups if _step_together(g[0], told)), None)
        if group is None:
            group = []
            self._groups.append(group)
        group.append(told)
        return group

    def add_seen(self, path: Path, step: int) -> None:
        """A run of which only the last step is known."""
        self._groups.append([_Told(path, "", step, None, RankTimes(path.name, 0, 0.0, None))])

    def finish(self) -> ForeignRun | None:
        """The run that a report is about; its notes name the others."""
        chosen = self._chosen
        if chosen is None:
            return None
        if len(self._chosen_group) > 1:
            _tell_ranks(chosen, self._chosen_group)
        others = [group[0] for group in self._groups if group is not self._chosen_group]
        if others:
            chosen.notes.append(_others_in_words(others))
        return chosen


@dataclass(frozen=True)
class _Told:
    """What is kept of a run that the report is not about."""

    path: Path
    tool: str
    step: int
    steps_per_epoch: int | None
    times: RankTimes

    @classmethod
    def of(cls, run: ForeignRun) -> "_Told":
        times = run.step_times
        own = RankTimes(run.path.name, times.num_steps, times.total_seconds, times.input_seconds)
        return cls(run.path, run.tool, run.step, run.steps_per_epoch, own)


def _length(run: ForeignRun) -> tuple[int, int]:
    return run.step, run.step_times.num_steps


def one_run(runs: Iterable[ForeignRun]) -> ForeignRun | None:
    gathering = Gathering()
    for run in runs:
        gathering.add(run)
    return gathering.finish()


def _others_in_words(others: list[_Told]) -> str:
    """Shortly: a directory may hold hundreds."""
    first = others[0]
    is_one_file = all(one.path == first.path for one in others)
    some = sorted(others, key=lambda one: -one.step)[:_MOST_NAMED]
    named = others if len(others) <= _MOST_NAMED else some
    names = _names_of([one.path for one in named])
    ends = [
        f"step {one.step:,}" + ("" if is_one_file else f" ({name})")
        for one, name in zip(named, names, strict=True)
    ]
    rest = len(others) - len(ends)
    more = f" and {rest:,} more" if rest else ""
    return (
        f"there are {count_of(len(others) + 1, 'run')} here; this is about the longest, "
        f"the others end at {', '.join(ends)}{more}"
    )


def _resumes(run: ForeignRun, earlier: ForeignRun) -> bool:
    """Proven only by a first step in the middle of the other run; where they are in different
    places, also by clocks and by a loss that goes on where the other was."""
    first, spacing = run.training_loss.first, run.print_every_steps or run.training_loss.spacing
    if first is None or first[0] <= 1 or earlier.step < 1 or run.tool != earlier.tool:
        return False
    # A tool that logs every 50 steps logs its first line at step 49, 50 or 51.
    is_in_the_middle = run.first_step is not None or first[0] > (spacing or first[0]) + 1
    if not is_in_the_middle or first[0] > earlier.step + (spacing or 1):
        return False
    if (run.path, run.part) == (earlier.path, earlier.part):
        return True
    return _began_after(run, earlier) and _loss_goes_on(first, earlier)


def _began_after(run: ForeignRun, earlier: ForeignRun) -> bool:
    if run.begin_time is None or earlier.end_time is None:
        return True
    return run.begin_time >= earlier.end_time


def _loss_goes_on(first: tuple[int, float], earlier: ForeignRun) -> bool:
    points = earlier.training_loss.points
    if not points:
        return False
    there = min(points, key=lambda point: abs(point[0] - first[0]))[1]
    fallen = abs(points[0][1] - there)
    return abs(first[1] - there) <= _SAME_LOSS * fallen


def _join(earlier: ForeignRun, later: ForeignRun) -> ForeignRun:
    begin = later.training_loss.points[0][0]
    redone = max(0, earlier.step - begin)
    outlived = [f"an earlier part ended with: {earlier.failure.line}"] if earlier.failure else []
    later.notes = [
        *earlier.notes,
        *outlived,
        *later.notes,
        f"it was resumed at step {begin:,}"
        + (f"; {redone:,} steps were done again" * bool(redone)),
    ]
    later.first_step = earlier.first_step
    later.begin_time = earlier.begin_time
    later.began = earlier.began or later.began
    later.training_loss = _continued(earlier.training_loss, later.training_loss, begin)
    later.validation_loss = _continued(earlier.validation_loss, later.validation_loss, begin)
    later.rate = _continued(earlier.rate, later.rate, begin)
    for mine, theirs in (
        (later.scores, earlier.scores),
        (later.training_scores, earlier.training_scores),
    ):
        for name, curve in theirs.items():
            mine[name] = _continued(curve, mine.get(name, Curve()), begin)
    _add_times(earlier, later)
    return later


def _continued(earlier: Curve, later: Curve, begin: int) -> Curve:
    earlier.drop_from(begin)
    for step, value in later.points:
        earlier.add(step, value)
    if earlier.first_not_finite is None:
        earlier.first_not_finite = later.first_not_finite
    earlier.not_finite_from = later.not_finite_from
    return earlier


def _add_times(earlier: ForeignRun, later: ForeignRun) -> None:
    """Steps that were done twice took their time twice."""
    mine, theirs = later.step_times, earlier.step_times
    mine.num_steps += theirs.num_steps
    mine.total_seconds += theirs.total_seconds
    if mine.input_seconds is not None and theirs.input_seconds is not None:
        mine.input_seconds += theirs.input_seconds
    timings = sorted([*theirs.curve.points, *mine.curve.points])
    slowest = [point for point in (mine.slowest, theirs.slowest) if point is not None]
    mine.curve = Curve()
    for step, seconds in timings:
        mine.curve.add(step, seconds)
    mine.slowest = max(slowest, key=lambda point: point[1]) if slowest else None
    if earlier.wall_seconds and later.wall_seconds:
        later.wall_seconds += earlier.wall_seconds


def _step_together(one: _Told, other: _Told) -> bool:
    """Processes that exchange gradients step together: same last step, same time in all. So do
    the runs of a sweep, but those are not named after ranks."""
    seconds = one.times.total_seconds, other.times.total_seconds
    return (
        one.path != other.path
        and is_named_after_rank(one.path, other.path)
        and (one.tool, one.step, one.steps_per_epoch)
        == (other.tool, other.step, other.steps_per_epoch)
        and one.times.num_steps == other.times.num_steps > 1
        and max(seconds) <= (1 + _SAME_PACE) * min(seconds)
    )


_DIGITS = re.compile(r"\d+")
_OF_RANK = re.compile(
    r"(?:^|[^a-z])(?:local[-_.]?)?(?:rank|worker|proc|process|node|host|gpu|task)", re.I
)


def is_named_after_rank(one: Path, other: Path) -> bool:
    """'rank0.log', 'worker-3/stdout.log', '0/stdout.log': names that differ in a number only."""
    pairs = list(zip(reversed(one.parts), reversed(other.parts), strict=False))
    different = [(a, b) for a, b in pairs if a != b]
    if len(one.parts) != len(other.parts) or len(different) != 1:
        return False
    a, b = different[0]
    is_number = Path(a).stem.isdecimal() and Path(b).stem.isdecimal()
    return _DIGITS.sub("", a) == _DIGITS.sub("", b) and (is_number or bool(_OF_RANK.search(a)))


def _tell_ranks(run: ForeignRun, ranks: list[_Told]) -> None:
    """The first file's curves; the process that waits longest for its input sets the pace."""
    names = _names_of([rank.path for rank in ranks])
    run.ranks = [replace(r.times, name=name) for r, name in zip(ranks, names, strict=True)]
    shares = [rank.input_share for rank in run.ranks if rank.input_share is not None]
    if shares:
        run.step_times.input_seconds = max(shares) * run.step_times.total_seconds
    if len(ranks) > (run.world or 0):
        run.world, run.world_how = len(ranks), "the files of processes that stepped together"
    run.notes.append(
        f"{count_of(len(ranks), 'file')} of one run, by their steps and times: curves are from "
        f"{run.path.name}"
    )


def _names_of(paths: list[Path]) -> list[str]:
    """What tells the files apart: their names, else the folders that they are in."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    return [f"{path.parent.name}/{path.name}" for path in paths]


_SAID_IN_TEXT = (
    *("world", "world_how", "hosts", "devices", "num_parameters", "steps_per_epoch"),
    *("steps_wanted", "batch_per_process", "global_batch", "batch_how", "start_up_seconds"),
    *("evaluation_seconds", "cpu_seconds", "ranks", "config", "failure"),
)
_CURVES = ("training_loss", "validation_loss", "rate")


def beside(events: ForeignRun, text: ForeignRun) -> ForeignRun:
    """One run of event files and of the text log beside them: each fills the other's holes."""
    same_steps = text.step and abs(events.step - text.step) <= max(0.1 * text.step, 1)
    for name in _SAID_IN_TEXT:
        if not getattr(events, name):
            setattr(events, name, getattr(text, name))
    events.notes += [*text.notes, f"read with {text.path.name}, which lies beside the event files"]
    events.has_end = events.has_end or text.has_end
    if text.step_times.num_steps and text.step_times.input_seconds is not None:
        events.step_times = text.step_times
    if same_steps or not events.step:
        for name in _CURVES:
            if not getattr(events, name):
                setattr(events, name, getattr(text, name))
    elif text.step > events.step:  # the event files count epochs
        events.step, events.first_step = text.step, text.first_step
        events.training_loss, events.validation_loss = text.training_loss, text.validation_loss
        events.rate, events.scores = text.rate, text.scores
        events.training_scores = text.training_scores
        events.step_times = text.step_times
        events.print_every_steps = text.print_every_steps
    events.scores = {**text.scores, **events.scores} if same_steps else events.scores
    return events
