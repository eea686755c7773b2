"""mmdetection, mmsegmentation and all others of OpenMMLab, older (mmcv) and newer (mmengine):

    2021-01-01 12:00:00,123 - mmdet - INFO - Epoch [1][50/7330] lr: 1.978e-03, eta: 1 day, 2:03:04,
      time: 0.532, data_time: 0.053, memory: 3901, loss_cls: 0.5, loss: 1.7
    2022/11/01 12:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 1.9800e-03  ...
    2022/11/01 12:00:00 - mmengine - INFO - Iter(train) [    50/160000]  ...
    2021-01-01 12:30:00,123 - mmdet - INFO - Epoch(val) [1][5000] bbox_mAP: 0.374, ...
    {"mode": "train", "epoch": 1, "iter": 50, "data_time": 0.05, "loss": 1.7, "time": 0.5}

The last is a line of the JSON that lies beside the text; it does not tell how long an epoch is.
`time` is the mean of the steps since the last line (mmengine: of the last ten), and `data_time` the
wait for the batch in it.
"""

import json
import re
from pathlib import Path
from typing import Any

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "OpenMMLab (mmdetection and relatives)"

_EPOCH = re.compile(r"Epoch(?:\(train\))?\s+\[(\d+)\]\[\s*(\d+)/(\d+)\]\s*(.*)")
_ITERATION = re.compile(r"Iter(?:\(train\))?\s+\[\s*(\d+)/(\d+)\]\s*(.*)")
_EVALUATED = re.compile(
    r"(Epoch|Iter)\(val\)\s+\[\s*(\d+)(?:/\d+)?\](?:\[\s*(\d+)(?:/(\d+))?\])?\s*(.*)"
)
_VALUE = re.compile(rf"([A-Za-z][\w./@-]*): ({NUMBER})(?=[\s,]|$)")
_WANTED = re.compile(r"max: (\d+) (epochs|iters)|max_epochs=(\d+)|max_iters=(\d+)")
_SETTING = re.compile(r"\b(workers_per_gpu|num_workers|samples_per_gpu|batch_size)\s*=\s*(\d+)")
_DEVICES = re.compile(r"^GPU ([\d,]+): (.+)")
_SCORE = re.compile(r"mAP|mIoU|aAcc|mDice|accuracy|top-?\d|\bPQ\b|NDS|AUC|AP50|PCK|mFscore")
_PARTS = ("_copypaste", "_s", "_m", "_l")
"""The same figures again, and those of small, medium and large objects alone."""
_SAVED = re.compile(r"Saving checkpoint at (\d+) epochs")
_DISTRIBUTED = re.compile(r"Distributed training: False")


def sureness(line: str) -> float:
    if line.startswith("{"):
        is_placed = '"iter"' in line or '"step"' in line
        is_ours = '"data_time"' in line and '"loss"' in line and is_placed
        return CERTAIN if is_ours else NO
    if "time:" not in line or "loss" not in line:
        return NO
    return CERTAIN if _EPOCH.search(line) or _ITERATION.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "the mean that it prints for the steps before a line")
        self._settings: dict[str, int] = {}
        self._wanted: tuple[int, str] | None = None
        self._place = _Place()

    def take(self, line: str) -> None:
        if line.startswith("{"):
            self._take_json(line)
        elif "(val)" in line and (match := _EVALUATED.search(line)):
            self._evaluated(match, line)
        elif "time:" in line and (match := _EPOCH.search(line)):
            epoch, index, size = int(match[1]), int(match[2]), int(match[3])
            self._book.run.steps_per_epoch = size
            self._progress((epoch - 1) * size + index, match[4], line)
        elif "time:" in line and (match := _ITERATION.search(line)):
            self._progress(int(match[1]), match[3], line)
            self._book.run.steps_wanted = int(match[2])
        elif "Saving checkpoint at" in line and (match := _SAVED.search(line)):
            self._saved(int(match[1]))
        else:
            self._about(line)

    def _saved(self, epochs: int) -> None:
        """The last line of an epoch is not always printed; that it ended is."""
        run = self._book.run
        if run.steps_per_epoch and run.training_loss:
            run.step = max(run.step, epochs * run.steps_per_epoch)

    def _progress(self, step: int, text: str, line: str) -> None:
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        if values.get("time") is None:
            return
        told = Progress(
            step,
            values.get("loss"),
            values.get("lr", values.get("base_lr")),
            values.get("time"),
            values.get("data_time"),
            stamp=stamp_of(line),
        )
        self._book.progress(told)

    def _evaluated(self, match: re.Match[str], line: str) -> None:
        """Of a line per batch while it evaluates only the last has scores."""
        run = self._book.run
        values = {name: number(value) for name, value in _VALUE.findall(match[5])}
        loss, scores = _evaluation(values)
        if not scores and loss is None:
            return
        step = run.step
        if match[1] == "Epoch" and run.steps_per_epoch and match[3]:
            step = int(match[2]) * run.steps_per_epoch
        self._book.evaluated(loss, scores, step)
        self._book.at(stamp_of(line))

    def _take_json(self, line: str) -> None:
        """Of a value that was logged while training, after an evaluation, or of the settings."""
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            return  # a torn line
        if not isinstance(given, dict):
            return
        for text in (given.get("config"), given.get("env_info")):
            for part in str(text or "").split("\n"):
                self._about(part)
        values = {str(name): number(value) for name, value in given.items()}
        is_placed = values.get("iter", values.get("step")) is not None
        if given.get("mode") != "val" and "loss" in given and "time" in given and is_placed:
            self._progress_json(given, values)
        elif is_placed:
            self._evaluated_json(given, values)

    def _progress_json(self, given: dict[str, Any], values: dict[str, float | None]) -> None:
        step = whole(given.get("step")) or self._place.step_of(
            whole(given.get("epoch")), whole(given.get("iter")) or 0
        )
        told = Progress(
            step,
            values.get("loss"),
            values.get("lr", values.get("base_lr")),
            values.get("time"),
            values.get("data_time"),
        )
        self._book.progress(told)
        self._book.run.steps_per_epoch = self._place.epoch_size

    def _evaluated_json(self, given: dict[str, Any], values: dict[str, float | None]) -> None:
        loss, scores = _evaluation(values)
        if not scores and loss is None:
            return
        at, last = whole(given.get("iter", given.get("step"))), self._book.run.step
        # By epochs, `iter` counts the batches of the evaluation, and `step` the epochs.
        is_global = at is not None and self._place.epoch_size is None and at >= last > 0
        self._book.evaluated(loss, scores, at if is_global else last or None)

    def _about(self, line: str) -> None:
        for name, value in _SETTING.findall(line):
            self._settings.setdefault(name, int(value))
        if match := _WANTED.search(line):
            epochs, iterations = match[3], match[4]
            count = match[1] or epochs or iterations
            is_epochs = bool(epochs) or match[2] == "epochs"
            self._wanted = (int(count), "epochs" if is_epochs else "iters")
        if match := _DEVICES.match(line):
            self._book.run.devices = (match[2].strip(),)
        if _DISTRIBUTED.search(line):
            self._book.run.world, self._book.run.world_how = 1, "'Distributed training: False'"
        self._book.look_for_failure(line)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        workers = self._settings.get("workers_per_gpu", self._settings.get("num_workers"))
        batch = self._settings.get("samples_per_gpu", self._settings.get("batch_size"))
        for run in runs:
            run.loader_workers, run.batch_per_process = workers, batch
            if workers is not None:
                run.config["workers"] = workers
            if self._wanted and self._wanted[1] == "iters":
                run.steps_wanted = self._wanted[0]
            elif self._wanted and run.steps_per_epoch:
                run.steps_wanted = self._wanted[0] * run.steps_per_epoch
            if run.steps_wanted:
                run.has_end = run.step >= run.steps_wanted
            if self._place.epoch_size:
                run.notes.append(
                    f"the log does not tell how long an epoch is: {self._place.epoch_size:,} "
                    "batches are the most that it shows, so steps may be a few more than counted"
                )
        return runs


class _Place:
    """Steps of a log that names epochs and the batches in them, but not how many there are."""

    def __init__(self) -> None:
        self.epoch_size: int | None = None
        """The most batches of an epoch that were seen; None where they are counted through."""
        self._base = 0
        self._last = (0, 0)

    def step_of(self, epoch: int | None, index: int) -> int:
        at = (epoch or 0, index)
        if at[0] > self._last[0] > 0 and index <= self._last[1]:
            self.epoch_size = max(self.epoch_size or 0, self._last[1])
            self._base += (at[0] - self._last[0]) * self.epoch_size
        elif at < self._last:
            self._base = (at[0] - 1) * (self.epoch_size or 0)  # another start into the same file
        self._last = at
        return self._base + index


def _evaluation(values: dict[str, float | None]) -> tuple[float | None, dict[str, float]]:
    loss: float | None = None
    scores: dict[str, float] = {}
    for name, value in values.items():
        if name in ("loss", "val_loss", "loss_val"):
            loss = value
        elif _SCORE.search(name) and not name.endswith(_PARTS) and value is not None:
            scores.setdefault(_score_name(name), value)
    return loss, scores


def _score_name(printed: str) -> str:
    """'coco/bbox_mAP_50' is not the 'bbox_mAP' beside it: each keeps its own name."""
    short = printed.rpartition("/")[2]
    match = re.match(r"(?:accuracy_)?top-?(\d)(?:_acc)?$", short)
    return f"top-{match[1]}" if match else short


FORMAT = TextFormat(TOOL, ("time:", '"data_time"'), sureness, _Reader)
