"""Logs of which every line is a JSON object: `log.txt` of DETR, DeiT, MAE and their relatives, with
a line for every epoch, LLaMA-Factory's `trainer_log.jsonl`, and others.

    {"train_lr": 0.0001, "train_loss": 8.84, "test_loss": 5.6, "test_acc1": 71.2, "epoch": 0}
    {"current_steps": 10, "total_steps": 500, "loss": 3.5, "epoch": 0.2, "elapsed_time": "0:00:10"}

What a value is, is judged by its name, as with event files. Lines of epochs tell no times.
"""

import json
import re
from pathlib import Path
from typing import Any

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, LIKELY, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import clock_seconds, number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tags import by_importance, meaning_of

TOOL = "log.txt of DETR, DeiT and relatives"
UNKNOWN = "JSON lines of a tool that Paceline does not know"

_EPOCH_LINE = re.compile(r'^\{"train_\w+": .*"epoch": \d+')
_STEPS = ("global_step", "step", "current_steps", "iteration", "iter", "num_updates", "update")
_ALL_STEPS = ("total_steps", "max_steps")
_LOSSES = ("loss", "train_loss", "train/loss", "training_loss")
_RATES = ("lr", "train_lr", "learning_rate", "train/lr", "train/learning_rate")
_ELAPSED = ("elapsed_time", "elapsed")
_MOMENTS = ("timestamp", "_timestamp", "time_stamp", "datetime")
_COCO = (("test_coco_eval_bbox", "box AP"), ("test_coco_eval_masks", "mask AP"))
_LONGEST = 1 << 18


def sureness(line: str) -> float:
    if not line.startswith("{") or len(line) > _LONGEST:
        return NO
    if _EPOCH_LINE.match(line):
        return CERTAIN
    given = _object(line)
    is_placed = any(name in given for name in (*_STEPS, "epoch"))
    return LIKELY if is_placed and any(name in given for name in _LOSSES) else NO


def _object(line: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, UNKNOWN, "the clock of its lines")
        self._is_of_epochs = self._has_steps = False
        self._lowest_epoch: int | None = None

    def take(self, line: str) -> None:
        if not line.startswith("{"):
            self._book.look_for_failure(line)
            return
        given = _object(line) if len(line) <= _LONGEST else {}
        values = {name: v for name, text in given.items() if (v := number(text)) is not None}
        if _EPOCH_LINE.match(line):  # of a family that counts from 0
            self._is_of_epochs, self._lowest_epoch = True, 0
        step = self._step_of(values)
        if step is None:
            return
        loss, rate = _first(values, _LOSSES), _first(values, _RATES)
        if loss is not None:
            self._book.progress(Progress(step, loss, rate, stamp=_clock(given)))
        self._evaluated(step, given, values)
        run = self._book.run
        run.steps_wanted = whole(_first(values, _ALL_STEPS)) or run.steps_wanted
        run.num_parameters = whole(values.get("n_parameters")) or run.num_parameters

    def _step_of(self, values: dict[str, float]) -> int | None:
        """Epochs count from 0 or from 1; a log that names steps is not placed by epochs."""
        step = _first(values, _STEPS)
        self._has_steps = self._has_steps or step is not None
        if step is None and not self._has_steps:
            epoch = values.get("epoch")
            if epoch is None or epoch != int(epoch):
                return None
            if self._lowest_epoch is None:
                self._lowest_epoch = int(epoch)
            step = epoch + (1 - min(self._lowest_epoch, 1))
        return int(step) if step is not None and 0 <= step < 2**53 else None

    def _evaluated(self, step: int, given: dict[str, Any], values: dict[str, float]) -> None:
        loss: float | None = None
        scores: dict[str, float] = {}
        for key, name in _COCO:
            found = given.get(key)
            if isinstance(found, list) and found and (value := number(found[0])) is not None:
                scores[name] = value
        for key, value in values.items():
            meaning = meaning_of(key)
            if meaning is None or not meaning.is_validation:
                continue
            if meaning.kind == "loss" and loss is None:
                loss = value
            elif meaning.kind == "score":
                scores.setdefault(meaning.name, value)
        if scores or loss is not None:
            self._book.evaluated(loss, scores, step)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.tool = TOOL if self._is_of_epochs else UNKNOWN
            run.scores = {name: run.scores[name] for name in by_importance(run.scores)}
            if run.begin_time is not None and run.begin_time < _YEAR_2000:
                run.began, run.begin_time, run.end_time = "", None, None
            if not self._has_steps:
                run.notes.append("the log counts epochs: what is called a step here is an epoch")
            if not self._is_of_epochs:
                run.notes.append("no reader knows this log: what its values are is judged by name")
        return runs


_YEAR_2000 = 946_684_800.0


def _first(values: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((values[name] for name in names if name in values), None)


def _clock(given: dict[str, Any]) -> float | None:
    """Seconds since 1970, or since it began."""
    for name in _MOMENTS:
        if name in given:
            moment = number(given[name])
            return moment if moment is not None else stamp_of(str(given[name]))
    for name in _ELAPSED:
        if name in given:
            seconds = number(given[name])
            return seconds if seconds is not None else clock_seconds(str(given[name]))
    return None


_HINTS = ('"epoch"', '"step"', '_step"', '_steps"', '"iter', '"update', '_updates"')
FORMAT = TextFormat(TOOL, _HINTS, sureness, _Reader, least_lines=2)
