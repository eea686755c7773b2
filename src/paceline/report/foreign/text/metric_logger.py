"""The MetricLogger of torchvision's references, DETR, DeiT, MAE and their many descendants:

    Epoch: [0]  [  10/7393]  eta: 1:23:45  lr: 0.000100  loss: 45.6 (46.7)  time: 0.5  data: 0.01
    Epoch: [0] Total time: 0:50:00 (0.4058 s / it)
    Averaged stats: lr: 0.000100  loss: 30.1 (35.2)

`time` and `data` are means of the last steps, up to twenty; 'Total time' is the mean of all.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import SAMPLE, Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, clock_seconds, number
from paceline.report.foreign.run import ForeignRun

TOOL = "MetricLogger (torchvision's references, DETR and relatives)"

_TRAIN = re.compile(r"Epoch: \[(\d+)(?:/\d+)?\]\s+\[\s*(\d+)/(\d+)\]\s+eta: .*?\s(.*)")
_TEST = re.compile(r"(?:Test|Val\w*|Eval\w*):?\s+\[\s*(\d+)/(\d+)\]\s+eta:")
_TOTAL = re.compile(rf"^(.*?):? ?Total time: ([\d:]+|\d+ days?, [\d:]+) \(({NUMBER}) s / it\)")
_VALUE = re.compile(rf"([\w@/]+): ({NUMBER})(?: \(({NUMBER})\))?")
_SUMMARY = re.compile(rf"\*\s+Acc@1\s+({NUMBER})\s+Acc@5\s+({NUMBER})(?:\s+loss\s+({NUMBER}))?")
_PRECISION = re.compile(
    rf"Average Precision\s+\(AP\) @\[ IoU=0\.50:0\.95 \| area=\s+all \| maxDets=100 \] = ({NUMBER})"
)
_WINDOW = 20
_PARAMETERS = re.compile(r"[Nn]umber of params:?\s*\(?(\d{3,})\)?$")
_NAMESPACE = re.compile(r"\b(num_workers|workers|batch_size|epochs|world_size)=(\d+)")


def sureness(line: str) -> float:
    if "eta:" not in line or "time:" not in line:
        return NO
    return CERTAIN if _TRAIN.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        how = "the mean of the last steps, up to twenty, before each line; totals from 'Total time'"
        self._book = Book(path, TOOL, how, SAMPLE)
        self._settings: dict[str, int] = {}
        self._epoch = 0
        self._seen: dict[int, EpochMean] = {}

    def take(self, line: str) -> None:
        if "eta:" in line and (match := _TRAIN.search(line)):
            self._train(int(match[1]), int(match[2]), int(match[3]), match[4])
        elif "Total time:" in line and (match := _TOTAL.search(line)):
            self._total(match[1], clock_seconds(match[2]), number(match[3]))
        elif "Acc@1" in line and (match := _SUMMARY.search(line)):
            top_1, top_5 = number(match[1]), number(match[2])
            if top_1 is not None and top_5 is not None:
                self._evaluated(number(match[3]), {"top-1": top_1, "top-5": top_5})
        elif "Average Precision" in line and (match := _PRECISION.search(line)):
            self._precision(number(match[1]))
        elif "Namespace(" in line:
            self._settings |= {name: int(value) for name, value in _NAMESPACE.findall(line)}
        elif match := _PARAMETERS.search(line):
            self._book.run.num_parameters = int(match[1])
        else:
            self._book.look_for_failure(line)

    def _train(self, epoch: int, index: int, size: int, text: str) -> None:
        book, self._epoch = self._book, epoch
        values = {name: (number(now), number(mean)) for name, now, mean in _VALUE.findall(text)}
        seconds = values.get("time", (None,))[0]
        data = values.get("data", (None,))[0]
        told = Progress(
            epoch * size + index + 1,
            values.get("loss", (None,))[0],
            values.get("lr", (None,))[0],
            seconds,
            data,
        )
        book.progress(told)
        book.run.steps_per_epoch = size
        if seconds is not None:
            self._seen[epoch] = _with_window(self._seen.get(epoch), index + 1, seconds, data)
            book.pace.epochs[epoch] = self._seen[epoch]

    def _total(self, head: str, seconds: float | None, mean: float | None) -> None:
        run, pace = self._book.run, self._book.pace
        if mean is None:
            return
        if "Epoch" in head or "Train" in head:
            size = run.steps_per_epoch
            if size:
                seen = self._seen.get(self._epoch)
                wait = seen.input_seconds if seen else None
                share = wait / seen.step_seconds if seen and wait is not None else None
                waited = mean * share if share is not None else None
                pace.epochs[self._epoch] = EpochMean(size, mean, waited)
                run.step = max(run.step, (self._epoch + 1) * size)
        elif seconds is not None:
            self._book.evaluated(seconds=seconds)

    def _precision(self, value: float | None) -> None:
        """COCO's tables follow each other: boxes first, then masks."""
        if value is None:
            return
        at = self._end_of_epoch()
        known = self._book.run.scores.get("box AP")
        is_second = known is not None and known.last is not None and known.last[0] == at
        self._evaluated(None, {"mask AP" if is_second else "box AP": value})

    def _evaluated(self, loss: float | None, scores: dict[str, float]) -> None:
        self._book.evaluated(loss, scores, self._end_of_epoch())

    def _end_of_epoch(self) -> int:
        run = self._book.run
        size = run.steps_per_epoch or 1
        return -(-run.step // size) * size

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            self._complete(run)
        return runs

    def _complete(self, run: ForeignRun) -> None:
        told = self._settings
        run.loader_workers = told.get("num_workers", told.get("workers"))
        if run.loader_workers is not None:
            run.config["workers"] = run.loader_workers
        run.batch_per_process = told.get("batch_size")
        if told.get("world_size"):
            run.world, run.world_how = told["world_size"], "world_size in its arguments"
        if told.get("epochs") and run.steps_per_epoch:
            run.steps_wanted = told["epochs"] * run.steps_per_epoch
            run.has_end = run.step >= run.steps_wanted


def _with_window(
    seen: EpochMean | None, num_steps: int, seconds: float, data: float | None
) -> EpochMean:
    """A line tells the mean of the last twenty steps, of fewer at the begin of an epoch."""
    if seen is None or num_steps <= _WINDOW:
        return EpochMean(num_steps, seconds, data)
    new = num_steps - seen.num_steps
    old_wait = seen.input_seconds
    wait = None
    if data is not None and old_wait is not None:
        wait = (seen.num_steps * old_wait + new * data) / num_steps
    mean = (seen.num_steps * seen.step_seconds + new * seconds) / num_steps
    return EpochMean(num_steps, mean, wait)


FORMAT = TextFormat(TOOL, ("eta:",), sureness, _Reader)
