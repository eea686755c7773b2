"""Sockeye, versions 1 to 3:

    [2020-01-01:12:00:00:INFO:sockeye.training:log] Epoch[0] Batch [50] Speed: 1234.56 samples/sec
      23456.78 tokens/sec 2.34 updates/sec  perplexity=1234.5
    [INFO:sockeye.training] Checkpoint [1] Updates=1000 Epoch=1 Samples=... Time-cost=123.4
      Updates/sec=8.1
    [INFO:sockeye.training] Checkpoint [1]  Validation-perplexity=12.3

A checkpoint's time is that of all its updates; an evaluation is not in it.
"""

import math
import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number
from paceline.report.foreign.run import ForeignRun

TOOL = "Sockeye"

_BATCH = re.compile(
    rf"(?:Epoch\[(\d+)\] Batch \[(\d+)\]|E=(\d+)\s+B=(\d+))\s+(?:Speed: )?"
    rf"(?:({NUMBER}) samples/sec|s/sec=({NUMBER}))\s+(?:({NUMBER}) tokens/sec|tok/sec=({NUMBER}))"
    rf"(?:\s+({NUMBER}) updates/sec|\s+u/sec?=({NUMBER}))?(.*)"
)
_CHECKPOINT = re.compile(
    rf"Checkpoint \[(\d+)\]\s+Updates=(\d+) Epoch=\d+ Samples=\d+ Time-cost=({NUMBER}) "
    rf"Updates/sec=({NUMBER})"
)
_VALUE = re.compile(rf"Checkpoint \[(\d+)\]\s+(Train|Validation)-([\w-]+)=({NUMBER})")
_MOST_SPEEDS = 10_000
_PERPLEXITY = re.compile(rf"(?:perplexity|ppl)=({NUMBER})")
_PARAMETERS = re.compile(r"[Tt]otal # of parameters: (\d+)|# of parameters: (\d+)")


def sureness(line: str) -> float:
    return CERTAIN if _CHECKPOINT.search(line) or _BATCH.search(line) else NO


class _Reader:
    """Between checkpoints batches are counted, not updates, so checkpoints carry the steps."""

    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "Time-cost of a checkpoint over its updates")
        self._steps: dict[int, int] = {}
        self._told: dict[int, dict[str, float]] = {}
        self._speeds: list[float] = []
        self._waiting: Progress | None = None
        self._batches = Book(path, TOOL, "updates per second that it prints since its last line")
        """For a log that ends before its first checkpoint."""
        self._epoch = self._before = self._index = 0

    def take(self, line: str) -> None:
        if "Checkpoint [" in line and (match := _CHECKPOINT.search(line)):
            self._checkpoint(match, line)
        elif "Checkpoint [" in line and (match := _VALUE.search(line)):
            self._value(int(match[1]), match[2], match[3], number(match[4]))
            self._book.at(stamp_of(line))
        elif "/sec" in line and (match := _BATCH.search(line)):
            self._batch(match, line)
        elif match := _PARAMETERS.search(line):
            self._book.run.num_parameters = int(match[1] or match[2])
        else:
            self._book.look_for_failure(line)

    def _batch(self, match: re.Match[str], line: str) -> None:
        epoch, index = int(match[1] or match[3]), int(match[2] or match[4])
        speed, pace = number(match[7] or match[8]), number(match[9] or match[10])
        if speed is not None and 0 < speed < 1e15:
            self._speeds.append(speed)
            if len(self._speeds) > _MOST_SPEEDS:
                self._speeds = self._speeds[::2]
        if epoch != self._epoch:
            self._epoch, self._before = epoch, self._before + self._index
        self._index = index
        perplexity = _PERPLEXITY.search(match[11])
        value = number(perplexity[1]) if perplexity else None
        told = Progress(
            self._before + index,
            math.log(value) if value and value > 0 else None,
            None,
            1 / pace if pace else None,
            None,
            speed,
            stamp_of(line),
        )
        self._batches.progress(told)

    def _checkpoint(self, match: re.Match[str], line: str) -> None:
        step, speed = int(match[2]), number(match[4])
        if self._waiting is not None and self._waiting.step == step:
            return  # printed twice
        self._flush()
        self._steps[int(match[1])] = step
        rate = len(self._speeds) / sum(1 / s for s in self._speeds if s) if self._speeds else None
        self._speeds = []
        seconds = 1 / speed if speed else None
        self._waiting = Progress(step, None, None, seconds, None, rate, stamp_of(line))

    def _value(self, checkpoint: int, split: str, name: str, value: float | None) -> None:
        step = self._steps.get(checkpoint)
        if step is None or value is None:
            return
        loss = math.log(value) if name == "perplexity" and value > 0 else None
        if split == "Train":
            if self._waiting is not None and loss is not None:
                self._waiting = self._waiting._replace(loss=loss)
            return
        self._flush()
        known = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "accuracy"}
        scores = {known[name]: value} if name in known else {}
        self._book.evaluated(loss, scores, step)

    def _flush(self) -> None:
        if self._waiting is not None:
            self._book.progress(self._waiting)
        self._waiting = None

    def finish(self) -> list[ForeignRun]:
        self._flush()
        runs = self._book.finish() or self._batches.finish()
        for run in runs:
            run.unit = "target token"
        return runs


FORMAT = TextFormat(TOOL, ("/sec", "tok/sec="), sureness, _Reader)
