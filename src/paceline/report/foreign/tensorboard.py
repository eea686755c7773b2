"""Runs from TensorBoard event files: which file belongs to which run, which scalar is what."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from statistics import median

from paceline.record.schema import RunDirectory
from paceline.report.foreign.event_files import Scalar, Start, read_scalars
from paceline.report.foreign.reading.gaps import Evaluation, gaps_between
from paceline.report.foreign.reading.longest import is_much, last_step_of_events, longest
from paceline.report.foreign.run import Curve, ForeignRun, Points, StepTimes
from paceline.report.foreign.tags import Kind, Meaning, by_importance, meaning_of
from paceline.units import count_of

TOOL = "TensorBoard event files"

_SPLIT_DIRECTORY = re.compile(
    r"train|training|train_inner|val|valid|validation|eval|evaluation|eval_\w+|test|dev"
)
"""Whole names only: 'train' in a longer name says nothing. `eval_NAME` is TensorFlow's."""
_HAS_SPLIT = re.compile(
    r"(?:^|[^a-z])(?:train|training|val|valid|validation|eval|evaluation|test|dev)(?:[^a-z]|$)"
)
_WRITER = re.compile(r"tfevents\.\d+\.(.+?)(?:\.\d+)?(?:\.v2)?$")
"""The host and the number of the process that wrote the file."""
_MADE = re.compile(r"tfevents\.(\d{9,11})\.")
_FIRST_EVENTS = 200
_PLAIN_LOSS = {
    "loss",
    "total",
    "step",
    "epoch",
    "batch",
    "train",
    "training",
    "inner",
    "val",
    "valid",
    "validation",
    "eval",
    "evaluation",
    "test",
    "dev",
}
_MOST_TAGS = 20_000
_FEW_STAMPS = 100
_PAUSE = 5.0
"""A gap of so many median steps is not a step."""


@dataclass
class _Series:
    tag: str
    meaning: Meaning | None
    values: Curve = field(default_factory=Curve)
    times: Curve = field(default_factory=Curve)
    shift: int = 0
    last_step: int = -1
    last_file: Path | None = None
    end_time: float = 0.0

    def add(self, file: Path, step: int, time: float, value: float) -> None:
        if step + self.shift < self.last_step:
            self._step_back(file, step)
        self.last_step, self.last_file = step + self.shift, file
        self.end_time = max(self.end_time, time)
        if self.meaning is None and self.times.num_points > _FEW_STAMPS:
            return  # nobody asks for its values, and there may be very many such
        self.values.add(self.last_step, value)
        self.times.add(self.last_step, time)

    def _step_back(self, file: Path, step: int) -> None:
        """In a new file: a run that was resumed. In one file: steps counted anew every epoch."""
        if file == self.last_file:
            self.shift = self.last_step + 1 - step if step else self.last_step + 1
        else:
            self.shift = 0
            self.drop_from(step)

    def put_one_step_back(self) -> None:
        for name in ("values", "times"):
            moved = Curve()
            for step, value in getattr(self, name).points:
                moved.add(step - 1, value)
            setattr(self, name, moved)
        self.last_step -= 1

    def drop_from(self, step: int) -> None:
        self.values.drop_from(step)
        self.times.drop_from(step)
        self.last_step = min(self.last_step, step - 1)


def event_files(path: Path) -> list[Path]:
    """Those of other tools: a directory of our own runs is to be read run by run."""
    if path.is_file():
        return [path]
    # The name begins with the time at which the file was made.
    files = sorted(file for file in path.rglob("*tfevents*") if file.is_file())
    ours = {folder for folder in {f.parent for f in files} if _is_in_a_run_below(folder, path)}
    return [file for file in files if file.parent not in ours]


def _is_in_a_run_below(folder: Path, top: Path) -> bool:
    between = [folder, *folder.parents]
    return any(RunDirectory(one).exists() for one in between[: between.index(top)])


def read(path: Path, only_seen: dict[Path, int] | None = None) -> Iterator[ForeignRun]:
    """One run after another, so that a thousand of them need no more memory than one. Of very many
    the longest are read; of the others `only_seen` tells the last step."""
    groups: dict[tuple[str, ...], list[tuple[Path, str]]] = {}
    files = event_files(path)
    writers = {(file.parent, writer) for file in files if (writer := _writer_of(file))}
    for file in files:
        parts = file.parent.relative_to(path).parts if path.is_dir() else ()
        cut = next((n for n, _ in enumerate(parts) if _is_split(file, parts, n, writers)), None)
        run, split = (parts, ()) if cut is None else (parts[:cut], parts[cut:])
        groups.setdefault(run, []).append((file, "/".join([*split, ""])))
    if only_seen is not None and is_much(files, len(groups)):
        ends = {place: _last_step(members) for place, members in groups.items()}
        kept = longest(ends)
        only_seen |= {path.joinpath(*p): step or 0 for p, step in ends.items() if p not in kept}
        groups = {place: members for place, members in groups.items() if place in kept}
    for place, members in groups.items():
        yield from _read_group(path.joinpath(*place), members)


def _last_step(members: list[tuple[Path, str]]) -> int | None:
    steps = [last_step_of_events(file) for file, _ in members]
    return max((step for step in steps if step is not None), default=None)


def _writer_of(file: Path) -> str:
    match = _WRITER.search(file.name)
    return match[1] if match else ""


def _is_split(
    file: Path, parts: tuple[str, ...], place: int, writers: set[tuple[Path, str]]
) -> bool:
    """Whether the directory holds a part of the run above it: by its name, or because the same
    process wrote there and above (one that logs several curves into one picture)."""
    name = parts[place].lower()
    if _SPLIT_DIRECTORY.fullmatch(name):
        return True
    above = file.parents[len(parts) - place]
    return bool(_HAS_SPLIT.search(name)) and (above, _writer_of(file)) in writers


def _read_group(path: Path, files: list[tuple[Path, str]]) -> Iterator[ForeignRun]:
    """A file that begins at the first step again is another run into the same directory, not one
    that was resumed."""
    series: dict[str, _Series] = {}
    for file, prefix in sorted(files, key=lambda member: _made_at(member[0])):
        events = read_scalars(file)
        begin = list(islice(events, _FIRST_EVENTS))
        if _begins_anew(begin, prefix, series):
            yield from _run_if_any(path, series)
            series = {}
        _add_events(series, file, prefix, chain(begin, events))
    yield from _run_if_any(path, series)


def _run_if_any(path: Path, series: dict[str, _Series]) -> list[ForeignRun]:
    filled = [one for one in series.values() if one.times]
    return [_run_of(path, filled)] if filled else []


def _made_at(file: Path) -> tuple[int, str]:
    match = _MADE.search(file.name)
    return (int(match[1]) if match else 0, str(file))


def _begins_anew(begin: Iterable[Scalar | Start], prefix: str, series: dict[str, _Series]) -> bool:
    """By the first scalar that the run before had too: a file that goes on with it does not begin
    where a tool logs its first value."""
    scalars = [event for event in begin if isinstance(event, Scalar)]
    first = next((one for one in scalars if prefix + one.tag in series), None)
    if first is None:
        return False
    known = series[prefix + first.tag]
    following = next((s.step for s in scalars if s.tag == first.tag and s.step > first.step), None)
    spacing = following - first.step if following is not None else known.times.spacing or 1
    began = known.times.first[0] if known.times.first else 0
    is_at_begin = first.step <= max(spacing + 1, began)
    return is_at_begin and first.step < known.last_step and known.times.num_points > 1


def _add_events(
    series: dict[str, _Series], file: Path, prefix: str, events: Iterable[Scalar | Start]
) -> None:
    known: dict[str, _Series] = {}
    for event in events:
        if isinstance(event, Start):
            for one in series.values():
                if one.tag.startswith(prefix):
                    one.drop_from(event.step)
            continue
        bare, step, time, value = event
        if bare not in known:
            tag = prefix + bare
            if tag not in series:
                if len(series) >= _MOST_TAGS:
                    continue
                series[tag] = _Series(tag, meaning_of(tag))
            known[bare] = series[tag]
        known[bare].add(file, step, time, value)


def _run_of(path: Path, series: list[_Series]) -> ForeignRun:
    run = ForeignRun(path, TOOL)
    known = [one for one in series if one.meaning is not None]
    clock = _clock_series(known or series)
    late = [one for one in known if _is_one_late(one, clock)]
    for one in late:
        one.put_one_step_back()
    run.step = _last_step_of(late or known, clock)
    first, spacing = clock.times.points[0][0], clock.times.spacing
    if spacing and first > 2 * spacing:
        run.first_step = first
    _fill_curves(run, known, clock)
    _fill_times(run, known, clock)
    _fill_wall(run, series, clock)
    num_strange = len(series) - len(known)
    if num_strange:
        some = ", ".join(sorted(one.tag for one in series if one.meaning is None)[:6])
        told = count_of(num_strange, "scalar")
        run.notes.append(f"not understood by the name: {told} ({some})")
    return run


def _is_one_late(series: _Series, clock: _Series) -> bool:
    """Whether an evaluation counts as a step (mmcv), so that it stands one after the step it is of:
    never where training was logged, always one later."""
    spacing = clock.times.spacing or 1
    is_evaluated = series.meaning is not None and series.meaning.is_validation and spacing > 1
    return (
        is_evaluated
        and all(step % spacing == 0 for step, _ in clock.times.points)
        and all(step > 1 and step % spacing == 1 for step, _ in series.times.points)
    )


def _last_step_of(known: list[_Series], clock: _Series) -> int:
    """An evaluation after the last logged step of training tells how far that went; as late as the
    next step that would have been logged it tells nothing: some count an evaluation as a step."""
    last, spacing = clock.times.points[-1][0], clock.times.spacing or 1
    later = [one.last_step for one in known if last < one.last_step < last + spacing]
    return max([last, *later])


def _fill_wall(run: ForeignRun, series: list[_Series], clock: _Series) -> None:
    """What was logged long before the first step (a download, a summary of the model) is not the
    beginning of training; what was logged after the last one (an evaluation) is a part of it."""
    first_stamp = clock.times.points[0][1]
    step_seconds = run.step_times.mean_seconds or 0.0
    before = step_seconds * max(run.print_every_steps or 1, 1) * _PAUSE
    stamps = [one.times.points[0][1] for one in series]
    begin = min(stamp for stamp in [*stamps, first_stamp] if stamp >= first_stamp - before)
    run.begin_time, run.end_time = begin, max(one.end_time for one in series)
    if clock.times.num_points > 1:  # else all was logged at one moment, when it was over
        run.wall_seconds = max(run.end_time - begin, 0.0)
    run.began = datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%d %H:%M UTC")
    run.wall_how = "from the first to the last time stamp of training in the event files"
    told = _of_kind([one for one in series if one.meaning], "wall seconds", False)
    if told and told[0].values.last:
        run.wall_seconds = told[0].values.last[1]
        run.wall_how = f"the scalar '{told[0].tag}' of the event file"
        run.is_wall_whole = True
    evaluations = _of_kind([one for one in series if one.meaning], "wall seconds", True)
    if evaluations:
        spent = sum(value for _, value in evaluations[0].values.points)
        run.evaluation_seconds = min(spent, run.wall_seconds or spent) or None


def _clock_series(series: list[_Series]) -> _Series:
    """The scalar that is logged most often while training: its time stamps are the steps'.
    A summary at the end has one point, which is no clock."""
    training = [one for one in series if one.meaning and not one.meaning.is_validation]
    losses = [one for one in training if one.meaning and one.meaning.kind == "loss"]
    for kind in (losses, training, series):
        ticking = [one for one in kind if one.times.num_points > 1]
        if ticking:
            return max(ticking, key=lambda one: one.times.num_points)
    return max(losses or training or series, key=lambda one: one.times.num_points)


def _fill_curves(run: ForeignRun, known: list[_Series], clock: _Series) -> None:
    run.training_loss = _loss_of(_of_kind(known, "loss", False), clock)
    run.validation_loss = _loss_of(_of_kind(known, "loss", True), clock)
    rates = _of_kind(known, "rate", False)
    if rates:
        run.rate = max(rates, key=lambda one: one.values.num_points).values
    for is_validation, scores in ((False, run.training_scores), (True, run.scores)):
        found: dict[str, _Series] = {}
        for one in _of_kind(known, "score", is_validation):
            name = one.meaning.name if one.meaning else ""
            if name not in found or len(one.tag) < len(found[name].tag):
                found[name] = one
        for name in by_importance(found):
            scores[name] = _on_steps(found[name], clock)


def _of_kind(known: list[_Series], kind: Kind, is_validation: bool) -> list[_Series]:
    return [
        one
        for one in known
        if one.meaning and (one.meaning.kind, one.meaning.is_validation) == (kind, is_validation)
    ]


def _loss_of(losses: list[_Series], clock: _Series) -> Curve:
    """The whole loss rather than one of its parts: the tag with the fewest other words."""
    if not losses:
        return Curve()
    best = min(losses, key=lambda one: (_num_other_words(one.tag), -one.values.num_points))
    return _on_steps(best, clock)


def _num_other_words(tag: str) -> int:
    return sum(word not in _PLAIN_LOSS for word in re.findall(r"[a-z]+", tag.lower()))


def _on_steps(series: _Series, clock: _Series) -> Curve:
    """Scores are often logged by epoch; then their time stamps tell the step."""
    last, clock_last = series.times.points[-1], clock.times.points[-1]
    begin = clock.times.points[0][1]
    is_late = last[1] - begin > 0.5 * (clock_last[1] - begin)
    if series is clock or last[0] > 0.5 * clock_last[0] or not is_late:
        return series.values
    stamps = [time for _, time in clock.times.points]
    moved = Curve()
    time_of = dict(series.times.points)
    for step, value in series.values.points:
        place = max(bisect_right(stamps, time_of.get(step, begin)) - 1, 0)
        moved.add(clock.times.points[place][0], value)
    return moved


def _fill_times(run: ForeignRun, known: list[_Series], clock: _Series) -> None:
    """By time stamps, unless a scalar tells it: that one knows nothing of pauses."""
    run.step_times.how = f"time stamps of the scalar '{clock.tag}'"
    stamps = clock.times.points
    _time_by_stamps(run, stamps, _evaluations(known, len(stamps)))
    by_stamps = run.step_times
    logged = _of_kind(known, "step seconds", False)
    speeds = _of_kind(known, "steps per second", False)
    scale = 1.0
    for source in (*logged, *speeds):
        points = [(s, v if source in logged else 1 / v) for s, v in source.values.points if v > 0]
        if len(points) == 1 and by_stamps.num_steps > 1:
            continue  # a summary of the whole run is no time of a step
        scale = _scale_of(points, by_stamps.mean_seconds) or 0.0
        if points and scale:
            run.step_times = StepTimes(how=f"the scalar '{source.tag}' of the event file")
            _add_timings(run, [(step, seconds * scale) for step, seconds in points], 1)
            _as_sample(run.step_times, by_stamps, source)
            break
    _fill_input(run, known, scale or 1.0)


def _as_sample(times: StepTimes, by_stamps: StepTimes, source: _Series) -> None:
    """Logged every so many steps, single times are a sample; the stamps are of all steps."""
    spacing = source.values.spacing or 1
    logged, stamped = times.mean_seconds, by_stamps.mean_seconds
    if spacing < 2 or not logged or not stamped:
        return
    times.is_sample = True
    times.num_steps, times.total_seconds = by_stamps.num_steps, by_stamps.total_seconds
    times.how = f"{by_stamps.how}, for all steps; single ones by {times.how}"


def _scale_of(points: Points, stamped_seconds: float | None) -> float | None:
    """1 for seconds, 0.001 for milliseconds, None where the scalar is something else."""
    if not points or not stamped_seconds:
        return 1.0
    logged = median(value for _, value in points)
    near = (s for s in (1.0, 0.001) if 0.3 < logged * s / stamped_seconds < 2.0)
    return next(near, None)


def _evaluations(known: list[_Series], num_stamps: int) -> list[Evaluation]:
    """In the order of time; a value of validation data is logged when all of it was seen."""
    ends: dict[int, float] = {}
    for one in known:
        if one.meaning and one.meaning.is_validation:
            for step, time in one.times.points:
                ends[step] = max(ends.get(step, time), time)
    spent: dict[int, float] = {}
    for one in _of_kind(known, "wall seconds", True):
        for step, seconds in one.values.points:
            spent[step] = spent.get(step, 0.0) + seconds
    found = sorted(Evaluation(end, step, spent.get(step)) for step, end in ends.items())
    is_usual = len(found) > 0.5 * num_stamps  # else they show as gaps that are longer than usual
    return [one for one in found if is_usual or one.seconds is not None]


def _time_by_stamps(run: ForeignRun, stamps: Points, evaluations: list[Evaluation]) -> None:
    gaps = gaps_between(stamps, evaluations)
    if not gaps:
        return
    typical = median(seconds / count for _, count, seconds in gaps)
    steps = [gap for gap in gaps if gap[2] <= _PAUSE * typical * gap[1]]
    every = max(1, round(median(count for _, count, _ in steps or gaps)))
    _add_timings(run, [(step, seconds / count) for step, count, seconds in steps], every)
    run.print_every_steps = every
    run.step_times.num_steps = sum(count for _, count, _ in steps)
    run.step_times.total_seconds = sum(seconds for _, _, seconds in steps)
    pauses = sum(gap[2] for gap in gaps) - run.step_times.total_seconds
    run.pause_seconds = pauses if pauses > 0 else None


def _add_timings(run: ForeignRun, points: Iterable[tuple[int, float]], every: int) -> None:
    times = run.step_times
    times.steps_per_timing = every
    for step, seconds in points:
        times.add(step, seconds)
        times.num_steps += every
        times.total_seconds += every * seconds


def _fill_input(run: ForeignRun, known: list[_Series], scale: float) -> None:
    times = run.step_times
    waits = [one.values.points for one in _of_kind(known, "input seconds", False) if one.values]
    shares = [one.values.points for one in _of_kind(known, "input share", False) if one.values]
    if waits and times.num_steps:
        times.input_seconds = _mean(waits[0]) * scale * times.num_steps
    elif shares and times.total_seconds:
        times.input_seconds = _mean(shares[0]) * times.total_seconds


def _mean(points: Points) -> float:
    return sum(value for _, value in points) / len(points)


def run_of_scalars(path: Path, tool: str, scalars: Iterable[Scalar]) -> ForeignRun | None:
    """The same judgements for curves with time stamps that another store holds."""
    series: dict[str, _Series] = {}
    for one in scalars:
        if one.tag not in series:
            series[one.tag] = _Series(one.tag, meaning_of(one.tag))
        series[one.tag].add(path, one.step, one.time, one.value)
    filled = [one for one in series.values() if one.times]
    if not filled:
        return None
    run = _run_of(path, filled)
    run.tool = tool
    run.wall_how = run.wall_how.replace("the event files", "its store")
    run.wall_how = run.wall_how.replace("of the event file", "of its store")
    run.step_times.how = run.step_times.how.replace("of the event file", "of its store")
    return run
