"""timm's train.py:

    Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.412s, 621.1/s  (0.431s, 593.5/s)
      LR: 1.000e-06  Data: 0.010 (0.024)
    Test: [  48/48]  Time: 0.1 (0.2)  Loss: 1.1 (1.2)  Acc@1: 70.1 (72.3)  Acc@5: 90.2 (91.0)

A value is that of the last step, the one in brackets the mean since the epoch began, so sums over
epochs are exact. `Data` is the wait for the batch.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import SAMPLE, Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "timm"

_TRAIN = re.compile(r"\bTrain: (\d+) \[\s*(\d+)/(\d+)\s+\(\s*\d+%\)\](.*)")
_TIME = re.compile(rf"\bTime: ({NUMBER})s,\s*({NUMBER})/s\s+\(\s*({NUMBER})s,\s*({NUMBER})/s\)")
_PAIR = re.compile(rf"\b(Loss|Data): +({NUMBER}) +\(\s*({NUMBER})\)")
_RATE = re.compile(rf"\bLR: ({NUMBER})")
_TEST = re.compile(r"\bTest(?: \(EMA\))?: \[\s*(\d+)/(\d+)\](.*)")
_METER = re.compile(rf"(Time|Loss|Acc@\d): +({NUMBER}) +\(\s*({NUMBER})\)")
_MODEL = re.compile(r"Model (\S+) created, param count:\s*(\d+)")
_WORLD = re.compile(r"Process \d+, total (\d+)")
_EPOCHS = re.compile(r"Scheduled epochs: (\d+)")
_ARGUMENT = re.compile(r"\b(workers|batch_size|epochs)[=:]\s*(\d+)")


def sureness(line: str) -> float:
    match = _TRAIN.search(line)
    return CERTAIN if match and _TIME.search(match[4]) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        how = "the time that it prints for single steps; totals from its means over each epoch"
        self._book = Book(path, TOOL, how, SAMPLE)
        self._epochs: int | None = None
        self._pictures: dict[int, float] = {}

    def take(self, line: str) -> None:
        if "Train: " in line and (match := _TRAIN.search(line)):
            self._train(int(match[1]), int(match[2]), int(match[3]), match[4], stamp_of(line))
        elif "Test" in line and (match := _TEST.search(line)):
            self._test(int(match[1]), int(match[2]), match[3], " (EMA)" in line)
        else:
            self._about(line)

    def _train(self, epoch: int, index: int, size: int, text: str, stamp: float | None) -> None:
        time = _TIME.search(text)
        if time is None:
            return
        book = self._book
        pairs = {name: (number(now), number(mean)) for name, now, mean in _PAIR.findall(text)}
        rate, done = _RATE.search(text), index + 1
        data = pairs.get("Data", (None, None))
        told = Progress(
            epoch * size + done,
            pairs.get("Loss", (None, None))[0],
            number(rate[1]) if rate else None,
            number(time[1]),
            data[0],
            stamp=stamp,
        )
        book.progress(told)
        book.run.steps_per_epoch = size
        if (mean := number(time[3])) is not None:
            book.pace.epochs[epoch] = EpochMean(done, mean, data[1])
            self._pictures[epoch] = done * mean * (number(time[4]) or 0.0)

    def _test(self, index: int, last: int, text: str, is_average: bool) -> None:
        """Its means at the last batch are those of all; the averaged weights are another model."""
        if index < last or is_average:
            return
        means = {name: number(mean) for name, _, mean in _METER.findall(text)}
        scores = {
            f"top-{name[4:]}": value
            for name, value in means.items()
            if name.startswith("Acc@") and value is not None
        }
        seconds = means.get("Time")
        self._book.evaluated(
            means.get("Loss"),
            scores,
            _end_of_epoch(self._book.run),
            seconds * (last + 1) if seconds is not None else None,
        )

    def _about(self, line: str) -> None:
        run = self._book.run
        if match := _MODEL.search(line):
            run.config["arch"], run.num_parameters = match[1], int(match[2])
        elif match := _WORLD.search(line):
            run.world, run.world_how = int(match[1]), "the processes that it counts"
        elif match := _EPOCHS.search(line):
            self._epochs = int(match[1])
        elif "workers" in line or "batch_size" in line:
            run.config |= {name: int(value) for name, value in _ARGUMENT.findall(line)}
        else:
            self._book.look_for_failure(line)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit = "picture"
            if run.step_times.total_seconds and len(runs) == 1:
                seen = sum(self._pictures.values())
                run.units_per_second = seen / run.step_times.total_seconds
            run.loader_workers = whole(run.config.get("workers"))
            run.batch_per_process = whole(run.config.get("batch_size"))
            if self._epochs and run.steps_per_epoch:
                run.steps_wanted = self._epochs * run.steps_per_epoch
                run.has_end = run.step >= run.steps_wanted
        return runs


def _end_of_epoch(run: ForeignRun) -> int:
    size = run.steps_per_epoch or 1
    return -(-run.step // size) * size


FORMAT = TextFormat(TOOL, ("Train: ",), sureness, _Reader)
