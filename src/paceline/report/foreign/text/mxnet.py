"""MXNet's Module and Gluon, GluonCV and GluonNLP:

    INFO:root:Epoch[0] Batch [50]   Speed: 1234.56 samples/sec   accuracy=0.123   lr=0.1
    INFO:root:Epoch[0] Train-accuracy=0.5
    INFO:root:Epoch[0] Time cost=12.3
    INFO:root:Epoch[0] Validation-accuracy=0.6
    INFO:root:[Epoch 0] training: accuracy=0.1
    INFO:root:[Epoch 0] speed: 123 samples/sec   time cost: 1234.5
    INFO:root:[Epoch 0] validation: err-top1=0.7 err-top5=0.4
    INFO:root:[Epoch 0][Batch 99], Speed: 102.5 samples/sec, ObjLoss=12.1
    INFO:root:[Epoch 0] Training cost: 2179.576, ObjLoss=99.3

Some scripts print the speed since the line before, others that of one batch, so what is told of
whole epochs wins. Samples per second become a time per step only where the batch size is told.
Epochs need not be of one length: batches that are left over are kept for the next one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.settings import settings_in
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tags import meaning_of

TOOL = "MXNet or Gluon"

_BATCH = re.compile(
    r"\[?Epoch ?\[?(\d+)\]?,?\s*\[?Batch ?\[?(\d+)(?:\]?/\[?(\d+))?[^A-Za-z]*(?:LR: (\S+), )?"
    rf"Speed: ({NUMBER}) samples/sec(.*)"
)
_VALID = re.compile(r"\[?Epoch[ \[](\d+)\]\s+[Vv]alid(?:ation)?[-: ]+(.*)")
_TOOK = re.compile(rf"\[?Epoch[ \[](\d+)\].*?[Tt]ime cost[=:] ?({NUMBER})")
_SPEED = re.compile(r"\[Epoch (\d+)\] speed: (\d+) samples/sec")
_TRAINED = re.compile(
    rf"\[?Epoch[ \[](\d+)\]\s*(?:Training cost: ({NUMBER})|Speed: \d+ samples/sec over (\d+) secs)"
    rf"|Epoch\[(\d+)\] Time cost=({NUMBER})"
)
_BATCH_OF_ALL = re.compile(r"Total batch size is set to (\d+)")
_SAMPLES = re.compile(r"\bnum_samples=(\d+)")
_DEVICES = re.compile(r"\bnum_gpus=(\d+)")
_MEAN_AP = re.compile(rf"^mAP=({NUMBER})$")
_HEAD = re.compile(r"^~+ Mean ?AP (?:for (bbox|segm)|@ IoU=\[0\.50,0\.95\]) ~+$")
_BARE = re.compile(rf"^=({NUMBER})$")
_MOST_PENDING = 40_000
_VALUE = re.compile(rf"([\w-]+)=({NUMBER})")
_NEARLY_ALL = 0.95
_FAST = 50
"""Samples per second that are so many are exact enough as a whole number."""


def sureness(line: str) -> float:
    if "samples/sec" in line and _BATCH.search(line):
        return CERTAIN
    return CERTAIN if "Validation-" in line and _VALID.search(line) else NO


@dataclass
class _Epoch:
    size: int
    is_told: bool = False
    """The size; else the epoch may be a few steps longer."""
    covered: int = 0
    """Steps that lines tell of."""
    seconds: float = 0.0
    """Of those."""
    trained_seconds: float | None = None
    """Of all its steps, without validation."""
    speed: int | None = None
    """Samples per second, cut to a whole number, from the first batch to the begin of the last."""
    last_index: int = -1

    def cover(self, index: int, step_seconds: float, spacing: int | None) -> None:
        """A line tells of the steps since the line before; where lines were cut out, of as many as
        lines usually do."""
        passed = index - self.last_index if index > self.last_index else spacing or 1
        num_steps = passed if not spacing or passed < 2 * spacing else spacing
        self.covered += num_steps
        self.seconds += num_steps * step_seconds
        self.last_index = index

    def mean(self, batch: int | None) -> EpochMean | None:
        if self.trained_seconds is not None:
            return EpochMean(self.size, self.trained_seconds / self.size, None)
        is_covered = self.is_told and self.covered >= _NEARLY_ALL * self.size
        if (self.speed or 0) >= _FAST and batch and not is_covered:
            seconds = batch * (self.size - 1) / ((self.speed or 0) + 0.5)
            return EpochMean(self.size, seconds / self.size, None)
        return EpochMean(self.covered, self.seconds / self.covered, None) if self.covered else None


@dataclass(frozen=True)
class _Line:
    epoch: int
    index: int
    size: int | None
    speed: float
    text: str
    stamp: float | None


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "the batch over samples per second, by lines or epochs")
        self._settings: dict[str, object] = {}
        self._num_devices: int | None = None
        self._num_samples: int | None = None
        self._batch_of_all: int | None = None
        self._has_told_sizes = False
        self._highest: dict[int, int] = {}
        """The last batch of every epoch that was printed."""
        self._before = (-1, -1)
        self._base = 0
        """Steps before the epoch."""
        self._epochs: dict[int, _Epoch] = {}
        self._pending: list[_Line] = []
        self._score = ""

    def take(self, line: str) -> None:
        if "samples/sec" in line and (match := _BATCH.search(line)):
            self._batch(match, line)
        elif "poch" in line and self._end_of_epoch(line):
            return
        elif "Namespace(" in line or "batch_size" in line or "batch size" in line:
            self._about(line)
        elif not self._average_precision(line):
            self._book.look_for_failure(line)

    def _about(self, line: str) -> None:
        self._settings = {**settings_in(line), **self._settings}
        for name, pattern in (
            ("_num_devices", _DEVICES),
            ("_num_samples", _SAMPLES),
            ("_batch_of_all", _BATCH_OF_ALL),
        ):
            if match := pattern.search(line):
                setattr(self, name, int(match[1]))

    def _batch(self, match: re.Match[str], line: str) -> None:
        text = f"{match[6]} lr={match[4]}" if match[4] else match[6]
        told = _Line(
            epoch=int(match[1]),
            index=int(match[2]),
            size=whole(match[3]),
            speed=number(match[5]) or 0.0,
            text=text,
            stamp=stamp_of(line),
        )
        self._has_told_sizes = self._has_told_sizes or told.size is not None
        if told.epoch < self._before[0]:
            self._flush()
            self._highest = {}
        is_known = told.size is not None or any(e < told.epoch for e in self._highest)
        self._highest[told.epoch] = max(self._highest.get(told.epoch, 0), told.index)
        self._before = (told.epoch, told.index)
        if is_known:
            self._flush()
            self._progress(told)
            return
        # How long an epoch is shows when the next one begins.
        self._pending.append(told)
        if len(self._pending) > _MOST_PENDING:
            self._pending = self._pending[::2]

    def _size(self) -> int:
        """Batches of an epoch, where it is not told: by the number of samples, or one more than
        the highest index that was printed."""
        shown = max(self._highest.values(), default=0) + 1
        batch, spacing = self._global_batch(), self._book.pace.spacing or shown
        if batch and self._num_samples:
            size = self._num_samples // batch
            return size if shown <= size < shown + spacing else shown
        return shown

    def _flush(self) -> None:
        held, self._pending = self._pending, []
        for one in held:
            self._progress(one)

    def _progress(self, told: _Line) -> None:
        values = {name: number(value) for name, value in _VALUE.findall(told.text)}
        batch = self._global_batch()
        seconds = batch / told.speed if batch and told.speed else None
        at = self._place(told)
        step = Progress(
            at,
            _loss(values),
            values.get("lr"),
            seconds,
            None,
            told.speed or None,
            told.stamp,
            _scores(values),
        )
        self._book.progress(step)
        if seconds is not None:
            self._epochs[told.epoch].cover(told.index, seconds, self._book.pace.spacing)
        self._tell_mean(told.epoch)

    def _place(self, told: _Line) -> int:
        """The step of a line, counted over epochs of whatever length."""
        size, last = told.size or self._size(), max(self._epochs, default=None)
        if last is None or told.epoch < last:  # the first, or a start from there
            self._epochs, self._base = {}, told.epoch * size
        elif told.epoch > last:
            self._base += self._epochs[last].size + (told.epoch - last - 1) * size
        if told.epoch not in self._epochs:
            self._epochs[told.epoch] = _Epoch(size, told.size is not None)
        epoch = self._epochs[told.epoch]
        epoch.size = max(size, told.index + 1)
        return self._base + told.index + 1

    def _tell_mean(self, number_of_epoch: int) -> None:
        mean = self._epochs[number_of_epoch].mean(self._global_batch())
        if mean is not None:
            self._book.pace.epochs[number_of_epoch] = mean

    def _global_batch(self) -> int | None:
        """GluonCV multiplies `batch_size` with `num_gpus`, where that is a setting."""
        if self._batch_of_all:
            return self._batch_of_all
        batch = whole(self._settings.get("batch_size"))
        return batch * (self._num_devices or 1) if batch else None

    def _end_of_epoch(self, line: str) -> bool:
        """Whether the line sums up an epoch: its time, its speed or its validation."""
        trained, took = _TRAINED.search(line), _TOOK.search(line)
        if match := trained or took or _SPEED.search(line) or _VALID.search(line):
            self._flush()
            epoch = int(next(group for group in match.groups() if group is not None))
            if trained:
                self._trained(epoch, trained)
            elif took:
                self._took(epoch, line, number(took[2]))
            elif match.re is _VALID:
                self._valid(epoch, match[2])
                self._book.at(stamp_of(line))
        return match is not None

    def _trained(self, epoch: int, match: re.Match[str]) -> None:
        exact = number(match[2] or match[5])
        seconds = exact if exact is not None else int(match[3]) + 0.5
        if epoch in self._epochs:
            self._epochs[epoch].trained_seconds = seconds
            self._epochs[epoch].size = max(self._epochs[epoch].size, self._size_of(epoch))
            self._tell_mean(epoch)
        if match[5]:
            self._took(epoch, "", seconds)

    def _size_of(self, epoch: int) -> int:
        return self._epochs[epoch].size if self._has_told_sizes else self._size()

    def _took(self, epoch: int, line: str, seconds: float | None) -> None:
        run, speed = self._book.run, _SPEED.search(line)
        if speed and epoch in self._epochs:
            self._epochs[epoch].speed = int(speed[2])
            self._tell_mean(epoch)
        if seconds is not None:
            run.wall_seconds = (run.wall_seconds or 0.0) + seconds
            run.wall_how = (
                "the times of its epochs, added up; what it did between them is not in it"
            )

    def _valid(self, epoch: int, text: str) -> None:
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        scores = _scores(values)
        for name, value in values.items():
            if name.startswith("err-top") and value is not None:
                scores[f"top-{name[7:]}"] = round(1 - value, 10)
        if scores or _loss(values) is not None:
            self._book.evaluated(_loss(values), scores, self._after(epoch))

    def _after(self, epoch: int) -> int:
        known = self._epochs.get(epoch)
        return self._base + known.size if known else (epoch + 1) * self._size()

    def _average_precision(self, line: str) -> bool:
        """COCO's is a heading with a line that holds nothing but the figure, VOC's a line."""
        name, self._score = self._score, ""
        if match := _HEAD.match(line):
            self._score = {"bbox": "box mAP", "segm": "mask mAP"}.get(match[1], "mAP")
        elif match := _MEAN_AP.match(line) or (_BARE.match(line) if name else None):
            self._flush()
            value = number(match[1])
            if value is not None and self._before[0] >= 0:
                self._book.evaluated(None, {name or "mAP": value}, self._after(self._before[0]))
        return match is not None

    def finish(self) -> list[ForeignRun]:
        self._flush()
        runs = self._book.finish()
        for run in runs:
            self._complete(run)
        return runs

    def _complete(self, run: ForeignRun) -> None:
        run.unit = "sample"
        run.config = {str(name): value for name, value in self._settings.items()}
        run.loader_workers = whole(self._settings.get("workers"))
        run.global_batch, mean = self._global_batch(), run.step_times.mean_seconds
        if run.global_batch:
            run.batch_how = "batch_size in its arguments, times num_gpus where that is given"
            run.units_per_second = run.global_batch / mean if mean else None
        if self._num_devices:
            run.devices = (f"{self._num_devices} GPUs of one process",)
        self._tell_length(run)

    def _tell_length(self, run: ForeignRun) -> None:
        sizes = [one.size for one in self._epochs.values()]
        size = max(sizes) if sizes else None
        run.steps_per_epoch = size
        is_exact = self._has_told_sizes or (size or 0) > max(self._highest.values(), default=0) + 1
        if size and not is_exact:
            run.notes.append(
                f"the log does not tell how long an epoch is: {size:,} batches are the most that "
                "it shows, so later steps may be a few more than are counted"
            )
        epochs = whole(self._settings.get("epochs"))
        if epochs and size:
            num_done = max(self._epochs, default=-1) + 1
            # Epochs of different lengths: those to come are taken to be as the longest.
            run.steps_wanted = max(epochs - num_done, 0) * size + self._after(num_done - 1)
            run.has_end = num_done >= epochs and run.step >= run.steps_wanted


def _loss(values: dict[str, float | None]) -> float | None:
    """The one that is called so; several losses of parts are none of the whole."""
    named = [v for n, v in values.items() if n.lower() in ("loss", "cross-entropy")]
    others = [v for n, v in values.items() if "loss" in n.lower()]
    if named:
        return named[0]
    return others[0] if len(others) == 1 else None


def _scores(values: dict[str, float | None]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        meaning = meaning_of(name)
        if meaning and meaning.kind == "score" and value is not None and "err" not in name:
            found.setdefault(meaning.name, value)
    return found


FORMAT = TextFormat(TOOL, ("samples/sec", "Validation-"), sureness, _Reader)
