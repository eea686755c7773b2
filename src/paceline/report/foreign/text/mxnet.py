"""MXNet's Module and Gluon, GluonCV and GluonNLP:

    INFO:root:Epoch[0] Batch [50]   Speed: 1234.56 samples/sec   accuracy=0.123   lr=0.1
    INFO:root:Epoch[0] Train-accuracy=0.5
    INFO:root:Epoch[0] Time cost=12.3
    INFO:root:Epoch[0] Validation-accuracy=0.6
    INFO:root:[Epoch 0] training: accuracy=0.1
    INFO:root:[Epoch 0] speed: 123 samples/sec   time cost: 1234.5
    INFO:root:[Epoch 0] validation: err-top1=0.7 err-top5=0.4

Steps of an epoch are counted as far as they are printed; samples per second become a time per step
only where the batch size is told.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.settings import settings_in
from paceline.report.foreign.reading.stamps import stamp_of
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
_DEVICES = re.compile(r"\bnum_gpus=(\d+)")
_MEAN_AP = re.compile(rf"^~*\s*(?:mAP|MeanAP)\s*[=:~]+\s*({NUMBER})")
_MOST_PENDING = 40_000
_VALUE = re.compile(rf"([\w-]+)=({NUMBER})")


def sureness(line: str) -> float:
    if "samples/sec" in line and _BATCH.search(line):
        return CERTAIN
    return CERTAIN if "Validation-" in line and _VALID.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "the batch over samples per second, since the line before")
        self._settings: dict[str, object] = {}
        self._num_devices: int | None = None
        self._told_size: int | None = None
        self._before = (-1, -1)
        self._sizes: dict[int, int] = {}
        self._pending: list[tuple[int, int, float, str, float | None]] = []

    def take(self, line: str) -> None:
        if "samples/sec" in line and (match := _BATCH.search(line)):
            self._batch(match, line)
        elif "alid" in line and (match := _VALID.search(line)):
            self._valid(int(match[1]), match[2])
            self._book.at(stamp_of(line))
        elif "Namespace(" in line or "batch_size" in line:
            self._settings = {**settings_in(line), **self._settings}
            if match := _DEVICES.search(line):
                self._num_devices = int(match[1])
        elif "ime cost" in line and (match := _TOOK.search(line)):
            self._took(number(match[2]))
        else:
            self._book.look_for_failure(line)

    def _batch(self, match: re.Match[str], line: str) -> None:
        epoch, index, speed = int(match[1]), int(match[2]), number(match[5]) or 0.0
        text = f"{match[6]} lr={match[4]}" if match[4] else match[6]
        self._told_size = whole(match[3]) or self._told_size
        if epoch > self._before[0] >= 0 and self._before[0] not in self._sizes:
            self._sizes[self._before[0]] = self._before[1]
        size = self._size()
        if size is None:
            # How long an epoch is shows when the next one begins.
            self._pending.append((epoch, index, speed, text, stamp_of(line)))
            if len(self._pending) > _MOST_PENDING:
                self._pending = self._pending[::2]
        else:
            self._flush()
            self._progress((epoch, index, speed, text, stamp_of(line)))
        self._before = (epoch, index)

    def _size(self) -> int | None:
        """Batches of an epoch: one more than the highest index, by the usual spacing of lines."""
        if self._told_size:
            return self._told_size
        return max(self._sizes.values()) + 1 if self._sizes else None

    def _flush(self) -> None:
        held, self._pending = self._pending, []
        for one in held:
            self._progress(one)

    def _progress(self, told: tuple[int, int, float, str, float | None]) -> None:
        epoch, index, speed, text, stamp = told
        size = self._size() or 0
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        batch = self._global_batch()
        loss = next((v for n, v in values.items() if "loss" in n or n == "cross-entropy"), None)
        seconds = batch / speed if batch and speed else None
        at = epoch * size + index + 1
        step = Progress(at, loss, values.get("lr"), seconds, None, speed or None, stamp)
        self._book.progress(step._replace(scores=_scores(values)))

    def _global_batch(self) -> int | None:
        """GluonCV multiplies `batch_size` with `num_gpus`, where that is a setting."""
        batch = whole(self._settings.get("batch_size"))
        return batch * (self._num_devices or 1) if batch else None

    def _valid(self, epoch: int, text: str) -> None:
        self._flush_at_end_of(epoch)
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        scores = _scores(values)
        for name, value in values.items():
            if name.startswith("err-top") and value is not None:
                scores[f"top-{name[7:]}"] = round(1 - value, 10)
        loss = next((v for n, v in values.items() if "loss" in n or n == "cross-entropy"), None)
        size = self._size()
        self._book.evaluated(loss, scores, (epoch + 1) * size if size else epoch + 1)

    def _took(self, seconds: float | None) -> None:
        if seconds is not None:
            run = self._book.run
            run.wall_seconds = (run.wall_seconds or 0.0) + seconds
            run.wall_how = (
                "the times of its epochs, added up; what it did between them is not in it"
            )

    def _flush_at_end_of(self, epoch: int) -> None:
        if self._before[0] == epoch and epoch not in self._sizes:
            self._sizes[epoch] = self._before[1]
        self._flush()

    def finish(self) -> list[ForeignRun]:
        if not self._sizes and self._before[0] >= 0:
            self._sizes[self._before[0]] = self._before[1]
        self._flush()
        runs = self._book.finish()
        for run in runs:
            self._complete(run)
        return runs

    def _complete(self, run: ForeignRun) -> None:
        run.unit = "sample"
        run.config = {str(name): value for name, value in self._settings.items()}
        run.loader_workers = whole(self._settings.get("workers"))
        run.global_batch = self._global_batch()
        run.batch_how = "batch_size in its arguments, times num_gpus where that is given"
        if self._num_devices:
            run.devices = (f"{self._num_devices} GPUs of one process",)
        size = self._size()
        if size:
            run.steps_per_epoch = size
        if size and not self._told_size:
            run.notes.append(
                f"the log does not tell how long an epoch is: {size:,} batches are the most that "
                "it shows, so later steps may be a few more than are counted"
            )
        epochs = whole(self._settings.get("epochs"))
        if epochs and size:
            run.steps_wanted = epochs * size
            run.has_end = run.step >= run.steps_wanted


def _scores(values: dict[str, float | None]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        meaning = meaning_of(name)
        if meaning and meaning.kind == "score" and value is not None and "err" not in name:
            found.setdefault(meaning.name, value)
    return found


FORMAT = TextFormat(TOOL, ("samples/sec", "Validation-"), sureness, _Reader)
