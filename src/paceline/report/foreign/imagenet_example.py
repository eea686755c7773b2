"""What the PyTorch ImageNet example prints, and the many programs that print like it.

    Epoch: [0][  50/1252]  Time 5.296 (5.329)  Data 4.727 (4.677)  Loss 2.55 (4.47)  Acc@1 ...
    Test: [ 0/49]  Time ...
     * Acc@1 43.708 Acc@5 70.724

A value is that of the last step, the one in brackets the mean since the epoch began. `Time` is a
whole step, `Data` the wait for its batch. Several processes may print into one file.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from paceline.report.foreign.failures import HINTS, Failures
from paceline.report.foreign.run import Curve, ForeignRun
from paceline.report.foreign.text_lines import who_printed, without_stamp
from paceline.report.foreign.tracks import Means, Position, Skim, Track, Tracks
from paceline.units import count_of

TOOL = "PyTorch ImageNet example"

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_EPOCH = re.compile(r"Epoch:? ?\[\s*(\d+)\]\s*\[\s*(\d+)\s*/\s*(\d+)\s*\](.*)")
_TEST = re.compile(r"Test:? *\[\s*(\d+)\s*/\s*(\d+)\s*\](.*)")
_BEGINS = re.compile(r"(?=Epoch:? ?\[|Test:? *\[)")
_METER = re.compile(rf"([A-Za-z][\w@]*)[ :=]+({_NUMBER})\s*\(\s*({_NUMBER})\s*\)")
_SUMMARY = re.compile(r"(?:^|\s)\*\s.{0,80}?\b(?:Acc|Prec)@1")
_SUMMARY_VALUE = re.compile(rf"\b((?:Acc|Prec)@\d)\s+({_NUMBER})")
_RATE = re.compile(rf"\b(?:lr|learning[ _]rate)\b\s*[:=]?\s*\[?\s*({_NUMBER})", re.IGNORECASE)
_SETTING = re.compile(
    r"\b(epochs|workers|arch|batch_size|world_size|multiprocessing_distributed|amp|fp16)"
    r"='?([\w.+-]+)"
)
"""In a printed `Namespace(...)` of the program's arguments."""
_MODEL = re.compile(r"=> (?:creating|using pre-trained) model '(\w+)'")
_DEVICE = re.compile(r"Use GPU: (\d+)")
_WALL = re.compile(r"^\s*(?:Wall time:|real\b)\s*(.+)")
_CPU = re.compile(r"^\s*CPU times:.*total:\s*(.+)")
_INTERESTING = (
    "Epoch",
    "Test",
    "@1",
    "lr",
    "LR",
    "earning",
    " time",
    "CPU",
    "real",
    "=> ",
    "Use GPU",
    "Namespace(",
    *HINTS,
)
"""One of these is in every line that says something: most of a long log is progress bars, and
looking for plain words is ten times faster than for patterns."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|ms|m|s)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}

_LONGEST_STEP_SECONDS = 1e6
_LONGEST_LINE = 4000
_MOST_BATCHES = 1 << 40
NUM_TRAINING_PICTURES = 1_281_167
NUM_VALIDATION_PICTURES = 50_000
_PARAMETERS = {
    "alexnet": 61_100_840,
    "densenet121": 7_978_856,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "vit_b_16": 86_567_656,
}
"""With 1,000 classes, as torchvision builds them; the example prints only the name."""


def is_imagenet(line: str) -> bool:
    if "Time" not in line or not (match := _EPOCH.search(line) or _TEST.search(line)):
        return False
    return _METER.search(line, match.start()) is not None


def read(path: Path, lines: Iterator[str]) -> list[ForeignRun]:
    reader = _Reader(path)
    for line in lines:
        if not reader.passes_over(line):
            reader.take(line)
    return reader.finish()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tracks = Tracks()
        self._track: Track | None = None
        """The one that the last line of progress belongs to."""
        self._line_number = 0
        self._who = ""
        self._skim: Skim | None = None
        self._failures = Failures()
        self._num_unplaced = 0
        self._settings: dict[str, str] = {}
        self._devices: dict[str, None] = {}
        self._num_test_batches: int | None = None

    def passes_over(self, line: str) -> bool:
        if self._skim is None or not self._skim.passes_over(line, self._line_number + 1):
            return False
        self._line_number += 1
        return True

    def _end_skim(self) -> None:
        """The last line that was passed over is parsed: its running means are the epoch's."""
        skim, self._skim = self._skim, None
        if skim is None or not skim.num_passed or not (match := _EPOCH.search(skim.last_line)):
            return
        skim.count_passed()
        self._add(skim.track, skim.track.position, int(match[3]), _meters(match[4]))

    def take(self, line: str) -> None:
        self._end_skim()
        self._line_number += 1
        if not any(map(line.__contains__, _INTERESTING)):
            return
        self._who = who_printed(line)
        # Processes that share a file may begin a line inside another's.
        if line.count("Epoch") + line.count("Test:") > 1:
            for part in _BEGINS.split(line):
                self._take(part)
        else:
            self._take(line)

    def _take(self, line: str) -> None:
        if "[" in line and (match := _EPOCH.search(line)):
            num_batches = int(match[3])
            self._training((int(match[1]), int(match[2])), num_batches, _meters(match[4]))
            if self._track is not None and not self._who and self._tracks.is_alone(self._track):
                begin = line[: match.start(2)].rstrip(" ")
                self._skim = Skim(self._track, line, begin, num_batches)
        elif "Test" in line and (match := _TEST.search(line)):
            self._test(int(match[1]), int(match[2]), _meters(match[3]))
        elif "@1" in line and _SUMMARY.search(line):
            self._summary(line)
        elif len(line) < _LONGEST_LINE:
            self._other(line)

    def _training(
        self, position: Position, num_batches: int, meters: dict[str, tuple[float, float]]
    ) -> None:
        if not meters or not 0 < num_batches < _MOST_BATCHES or position[1] > num_batches:
            return
        if self._tracks.has_just_seen(position, meters, self._line_number, self._who):
            return  # printed twice, to the terminal and to a file
        track = self._tracks.continued_by(position, meters, self._line_number, self._who)
        if track is None:
            track = self._new_track(position)
        self._failures.went_on(track.run)
        self._track = track
        self._add(track, position, num_batches, meters)

    def _add(
        self,
        track: Track,
        position: Position,
        num_batches: int,
        meters: dict[str, tuple[float, float]],
    ) -> None:
        track.meters = meters
        run, (epoch, index) = track.run, position
        num_done = index + 1 - track.first_index
        step = epoch * num_batches + num_done
        if run.step and run.print_every_steps is None and step > run.step + 1:
            run.print_every_steps = step - run.step
        run.step, run.steps_per_epoch = step, num_batches
        _add_curves(run, step, meters)
        if not _is_duration(meters.get("Time")):
            return
        run.step_times.add(step, meters["Time"][0])
        if data := meters.get("Data") if _is_duration(meters.get("Data")) else None:
            track.has_data = True
        if data or not track.has_data:  # else the line was torn before that column
            means = Means(num_done, meters["Time"][1], data[1] if data else None)
            track.epochs[epoch] = means

    def _new_track(self, position: Position) -> Track:
        if self._track is not None:
            self._failures.ended(self._track.run)
        run = ForeignRun(self._path, TOOL)
        run.step_times.how = (
            "the Time column, whole steps by the program's own clock; in brackets it prints the "
            "mean since the epoch began, which is over all steps"
        )
        run.step_times.is_sample = True
        # Newer versions count from 1, and lines come every 10, 50 or 100 steps.
        first_index = 1 if position[1] % 10 == 1 else 0
        track = Track(run, self._line_number, position, first_index, self._who)
        self._tracks.begin(track)
        return track

    def _test(self, index: int, num_batches: int, meters: dict[str, tuple[float, float]]) -> None:
        self._num_test_batches = num_batches
        if self._track is None or not _is_duration(meters.get("Time")):
            return
        # The first batches are the slowest: a mean over few says nothing of the others.
        is_most = index >= num_batches / 2
        seconds = meters["Time"][1] * (num_batches if is_most else index + 1)
        self._track.evaluation_seconds[_end_of_epoch(self._track.run)] = seconds

    def _summary(self, line: str) -> None:
        if self._track is None:
            self._num_unplaced += 1
            return
        run = self._track.run
        step = _end_of_epoch(run)
        for name, value in _SUMMARY_VALUE.findall(line):
            curve = run.scores.setdefault(_score_name(name), Curve())
            if curve.last is None or curve.last[0] < step:
                curve.add(step, float(value))

    def _other(self, line: str) -> None:
        if "Namespace(" in line:
            self._settings |= dict(_SETTING.findall(line))
        elif match := _MODEL.search(line):
            self._settings["arch"] = match[1]
        elif match := _DEVICE.search(line):
            self._devices.setdefault(match[1])
        elif self._track is not None:
            self._about(self._track.run, line)

    def _about(self, run: ForeignRun, line: str) -> None:
        if match := _RATE.search(line):
            step = _end_of_epoch(run)
            if run.rate.last is None or run.rate.last[0] < step:
                run.rate.add(step, float(match[1]))
        elif (match := _WALL.match(without_stamp(line))) and (seconds := _duration(match[1])):
            run.wall_seconds = seconds
            run.wall_how = "the wall time that is printed at the end of the log"
            run.is_wall_whole = True
            run.has_end = True
        elif match := _CPU.match(without_stamp(line)):
            run.cpu_seconds = _duration(match[1])
        else:
            self._failures.look_at(line)

    def finish(self) -> list[ForeignRun]:
        self._end_skim()
        if self._track is not None:
            self._failures.ended(self._track.run)
        runs = self._tracks.runs()
        for run in runs:
            self._complete(run)
        if runs and self._num_unplaced:
            lines = count_of(self._num_unplaced, "evaluation")
            runs[0].notes.append(f"{lines} before the first line with a step: left out")
        return runs

    def _complete(self, run: ForeignRun) -> None:
        run.step = max([run.step, *(c.last[0] for c in run.scores.values() if c.last)])
        if len(self._devices) > (run.world or 1):
            run.world, run.world_how = len(self._devices), "the devices that the log names"
        self._count_world(run)
        run.config = dict(self._settings)
        run.num_parameters = _PARAMETERS.get(self._settings.get("arch", ""))
        epochs = self._settings.get("epochs", "")
        if epochs.isdecimal() and int(epochs) and run.steps_per_epoch:
            run.steps_wanted = int(epochs) * run.steps_per_epoch
            run.has_end = run.step >= run.steps_wanted
        self._find_batch(run)

    def _count_world(self, run: ForeignRun) -> None:
        """`world_size` counts hosts where the program starts a process for each device."""
        told = self._settings.get("world_size", "")
        starts_more = self._settings.get("multiprocessing_distributed") == "True"
        if told.isdecimal() and int(told) > (run.world or 0) and not starts_more:
            run.world, run.world_how = int(told), "world_size in the printed arguments"

    def _find_batch(self, run: ForeignRun) -> None:
        fitting = _batches_that_fit(NUM_TRAINING_PICTURES, run.steps_per_epoch)
        if self._num_test_batches is not None and not run.world:
            fitting &= _batches_that_fit(NUM_VALIDATION_PICTURES, self._num_test_batches)
        size = self._settings.get("batch_size", "")
        if len(fitting) > 1 and size.isdecimal():
            fitting &= {int(size), int(size) * (run.world or 1)}
        if len(fitting) == 1:
            run.global_batch = fitting.pop()
            run.batch_how = (
                f"{run.steps_per_epoch:,} batches an epoch, if these are the "
                f"{NUM_TRAINING_PICTURES:,} pictures of ILSVRC 2012"
            )


def _add_curves(run: ForeignRun, step: int, meters: dict[str, tuple[float, float]]) -> None:
    for name, (value, _) in meters.items():
        if name == "Loss":
            run.training_loss.add(step, value)
        elif "@" in name:
            run.training_scores.setdefault(_score_name(name), Curve()).add(step, value)
        elif name.lower() == "lr":
            run.rate.add(step, value)


def _end_of_epoch(run: ForeignRun) -> int:
    """Lines come every so many steps; an evaluation comes after the last step of an epoch."""
    size = run.steps_per_epoch or 1
    return -(-run.step // size) * size


def _meters(text: str) -> dict[str, tuple[float, float]]:
    return {name: (float(value), float(mean)) for name, value, mean in _METER.findall(text)}


def _is_duration(meter: tuple[float, float] | None) -> bool:
    """A clock that was set back, or a torn column, gives what no step can take."""
    return meter is not None and all(0 <= seconds < _LONGEST_STEP_SECONDS for seconds in meter)


def _score_name(printed: str) -> str:
    """'Acc@1' and 'Prec@1' are the share of pictures whose first guess is right."""
    return "top-" + printed.partition("@")[2]


def _batches_that_fit(num_pictures: int, num_batches: int | None) -> set[int]:
    if not num_batches or num_batches < 2:
        return set()
    smallest = -(-num_pictures // num_batches)
    largest = (num_pictures - 1) // (num_batches - 1)
    return set(range(smallest, largest + 1))


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text)
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) if parts else None
