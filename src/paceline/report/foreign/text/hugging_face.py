"""Hugging Face's Trainer: the dictionaries that it prints, and its bar between them.

    ***** Running training *****
      Total optimization steps = 375
    {'loss': 0.52, 'grad_norm': 1.9, 'learning_rate': 2e-05, 'epoch': 0.5}
    {'eval_loss': 0.41, 'eval_accuracy': 0.88, 'eval_runtime': 3.2, 'epoch': 1.0}
    {'train_runtime': 123.4, 'train_samples_per_second': 24.3, 'train_loss': 0.4, 'epoch': 3.0}

A dictionary names its epoch, not its step. The step follows from the steps of an epoch; where the
log tells neither those nor a bar, lines are counted, and a note says so.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from paceline.report.foreign.failures import Failures
from paceline.report.foreign.reading.contract import CERTAIN, LIKELY, NO, TextFormat
from paceline.report.foreign.reading.trainer_logs import Entry, epoch_of, fill_from_entries
from paceline.report.foreign.reading.values import clock_seconds, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "Hugging Face Trainer"

_DICTIONARY = re.compile(r"\{'[\w/ .-]+':[^{}]*'epoch':[^{}]*\}")
_SETTING = re.compile(
    r"(Num Epochs|Instantaneous batch size per device|Total train batch size[^=]*|"
    r"Gradient Accumulation steps|Total optimization steps|Number of trainable parameters)"
    r"\s*=\s*([\d,]+)"
)
_BAR = re.compile(r"(\d+)/(\d+) \[([\d:]+)<")
_MOST_ENTRIES = 40_000


@dataclass
class _Start:
    """What one start of the trainer printed."""

    settings: dict[str, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    bar: tuple[int, int, float] | None = None
    bar_steps: list[int | None] = field(default_factory=list)
    """Where the bar was when each entry was printed."""
    epoch: float | None = None
    num_left_out: int = 0

    def add(self, entry: Entry) -> None:
        self.epoch = entry.epoch if entry.epoch is not None else self.epoch
        self.entries.append(entry)
        self.bar_steps.append(self.bar[0] if self.bar else None)
        if len(self.entries) > _MOST_ENTRIES:
            self._thin_out()

    def _thin_out(self) -> None:
        """Of very many losses every second one; evaluations stay."""
        kept = [
            place
            for place, entry in enumerate(self.entries)
            if place % 2 == 0 or "loss" not in entry.values
        ]
        self.num_left_out += len(self.entries) - len(kept)
        self.entries = [self.entries[place] for place in kept]
        self.bar_steps = [self.bar_steps[place] for place in kept]


def sureness(line: str) -> float:
    if "Total optimization steps =" in line:
        return CERTAIN
    match = _DICTIONARY.search(line) if "'epoch'" in line else None
    if match is None:
        return NO
    known = ("'learning_rate'", "'eval_loss'", "'eval_runtime'", "'train_runtime'")
    return CERTAIN if any(word in match[0] for word in known) else LIKELY


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = [_Start()]
        self._failures = Failures()
        self._notes = ForeignRun(path, TOOL)

    def take(self, line: str) -> None:
        if "'epoch'" in line and (match := _DICTIONARY.search(line)):
            self._entry(match[0])
        if "it/s" in line or "s/it" in line:
            if match := _BAR.search(line):
                self._bar(int(match[1]), int(match[2]), clock_seconds(match[3]))
        elif " = " in line and (match := _SETTING.search(line)):
            self._setting(match[1], match[2])
        else:
            self._failures.look_at(line)

    def _setting(self, name: str, value: str) -> None:
        if name == "Total optimization steps" and self._starts[-1].entries:
            self._starts.append(_Start(dict(self._starts[-1].settings)))
        self._starts[-1].settings[name.partition(" (")[0]] = whole(value) or 0

    def _bar(self, step: int, total: int, seconds: float | None) -> None:
        start = self._starts[-1]
        wanted = start.settings.get("Total optimization steps")
        if seconds is None or (wanted and total != wanted):
            return
        if not wanted and start.bar is not None and total < start.bar[1]:
            return  # a shorter bar is that of an evaluation
        start.bar = (step, total, seconds)

    def _entry(self, text: str) -> None:
        values = _values(text)
        if not values:
            return
        self._failures.went_on(self._notes)
        start = self._starts[-1]
        epoch = epoch_of(values)
        if epoch is not None and start.epoch is not None and epoch < start.epoch - 1e-9:
            start = _Start(dict(start.settings))
            self._starts.append(start)
        start.add(Entry(values, epoch))

    def finish(self) -> list[ForeignRun]:
        runs = [self._run(start) for start in self._starts if start.entries]
        if runs:
            self._failures.ended(runs[-1])
            runs[-1].notes += self._notes.notes
        return runs

    def _run(self, start: _Start) -> ForeignRun:
        run = ForeignRun(self._path, TOOL)
        told = start.settings
        total = told.get("Total optimization steps") or (start.bar[1] if start.bar else None)
        run.steps_wanted = total
        run.num_parameters = told.get("Number of trainable parameters") or None
        run.batch_per_process = told.get("Instantaneous batch size per device")
        run.global_batch = told.get("Total train batch size")
        run.batch_how = "as it prints before it trains" if run.global_batch else ""
        _world(run, told.get("Gradient Accumulation steps") or 1)
        per_epoch = _steps_per_epoch(start, total)
        fill_from_entries(run, _placed(start, per_epoch), per_epoch, total)
        if start.bar and run.wall_seconds is None and start.bar[2] and start.bar[0]:
            step, _, seconds = start.bar
            run.step = max(run.step, step)
            run.wall_seconds, run.wall_how = seconds, "the time that its progress bar shows"
            run.is_wall_whole = True
            run.step_times.num_steps = step
            run.step_times.total_seconds = max(seconds - (run.evaluation_seconds or 0.0), 0.0)
            run.step_times.how = "the time of its progress bar, without evaluations, over its steps"
        return run


def _steps_per_epoch(start: _Start, total: int | None) -> float | None:
    """Of 1,907 batches, 4 for each step, 476 steps are taken in an epoch of 476.75: the total
    tells the first figure, and `epoch` is counted by the second."""
    epochs, last = start.settings.get("Num Epochs"), start.entries[-1]
    rough = total / epochs if total and epochs else None
    if rough is None:
        is_known = total and last.epoch and "train_runtime" in last.values
        return (total or 0) / (last.epoch or 1.0) if is_known else None
    is_over = last.epoch and "train_runtime" in last.values
    candidates = [(total or 0) / (last.epoch or 1.0)] if is_over else []
    by_bar = [
        step / entry.epoch
        for entry, step in zip(start.entries, start.bar_steps, strict=True)
        if step and entry.epoch and entry.epoch > (last.epoch or 0.0) / 2
    ]
    candidates += [median(by_bar)] if by_bar else []
    return next((one for one in candidates if rough - 0.5 <= one <= rough + 1.5), rough)


def _placed(start: _Start, per_epoch: float | None) -> list[Entry]:
    """By the bar, which tells the step, where that agrees with the epoch, which is rounded."""
    placed = []
    for entry, step in zip(start.entries, start.bar_steps, strict=True):
        guess = entry.epoch * per_epoch if entry.epoch is not None and per_epoch else None
        is_near = guess is None or abs((step or 0) - guess) <= 2 + 0.006 * (per_epoch or 0)
        placed.append(entry._replace(step=step if step is not None and is_near else None))
    return placed if all(entry.step is not None for entry in placed) else start.entries


def _world(run: ForeignRun, accumulate: int) -> None:
    if run.global_batch and run.batch_per_process:
        size = run.global_batch / (run.batch_per_process * accumulate)
        if size == int(size) and size >= 1:
            run.world = int(size)
            run.world_how = "the batch of all processes over that of one"


def _values(text: str) -> dict[str, float]:
    """Newer versions print the figures as text."""
    try:
        read: Any = ast.literal_eval(text.replace(": nan", ": 'nan'").replace(": inf", ": 'inf'"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    found = {str(name): number(value) for name, value in read.items()}
    return {name: value for name, value in found.items() if value is not None}


FORMAT = TextFormat(TOOL, ("'epoch'", "Total optimization steps"), sureness, _Reader)
