"""Text of no known tool: steps, losses and time stamps by the words that most programs use.

Only lines that name both a step (or an epoch) and a loss count, and only where several do. A note
says by what they were found and how many there were, because all of it is a guess.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import NO, POSSIBLE, TextFormat
from paceline.report.foreign.reading.settings import settings_in
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "a tool that Paceline does not know"

_STEP = re.compile(
    r"\b(?:global[_ ]?step|steps?|iter(?:ation)?s?|updates?|batch(?:es)?)\b\s*[:=#\[(]*\s*"
    r"(\d+)(?:\s*(?:/|of)\s*(\d+))?",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepochs?\b\s*[:=#\[(]*\s*(\d+)(?:\s*(?:/|of)\s*(\d+))?", re.IGNORECASE)
_VALIDATION = re.compile(
    rf"\b(?:val(?:id(?:ation)?)?|test|eval|dev)[ _]*loss\b\s*[:=]?\s*({NUMBER})", re.IGNORECASE
)
_HEADING = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test(?:ing)?|dev)\b(?: (?:results?|set|phase))?"
    r"\s*[:\])|>](?!\s*[\d.])",
    re.IGNORECASE,
)
"""'[Epoch 3] validation: acc=0.5 loss=1.2': what follows is not of training."""
_LOSS = re.compile(
    rf"(?<!val )(?<!val_)(?<!test )(?<!test_)(?<!valid_)(?<!validation )(?<!eval_)(?<!eval )"
    rf"\b(?:train(?:ing)?[ _])?loss\b(?! ?scale)\s*[:=]?\s*({NUMBER})",
    re.IGNORECASE,
)
_RATE = re.compile(rf"\b(?:lr|learning[ _]rate)\b\s*[:=]?\s*({NUMBER})", re.IGNORECASE)
_ACCURACY = re.compile(
    rf"\b(?:val(?:id(?:ation)?)?|test|eval|dev)[ _]*acc(?:uracy)?\b\s*[:=]?\s*({NUMBER})", re.I
)
_HINTS = ("loss", "Loss", "LOSS")
_LONGEST = 2000
_FIGURE = re.compile(r"\s*[-+]?[\d.:]+(?:e[-+]?\d+)?", re.IGNORECASE)
_MANY_SHAPES = 2


def sureness(line: str) -> float:
    if len(line) > _LONGEST or not _LOSS.search(line):
        return NO
    if _STEP.search(line):
        return POSSIBLE
    return POSSIBLE * 0.8 if _EPOCH.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "time stamps of the lines")
        self._words: set[str] = set()
        self._num_lines = self._num_used = 0
        self._has_steps: bool | None = None
        self._lowest_epoch: int | None = None
        self._shapes: set[str] = set()
        """The lines of training without their figures."""

    def take(self, line: str) -> None:
        self._num_lines += 1
        if len(line) > _LONGEST:
            return
        if not any(map(line.__contains__, _HINTS)):
            self._about(line)
            return
        loss, validation = _LOSS.search(line), _VALIDATION.search(line)
        step = self._step_of(line) if loss or validation else None
        if step is None:
            return
        self._num_used += 1
        if loss and (head := _HEADING.search(line)) and head.end() <= loss.start():
            self._book.evaluated(number(loss[1]), step=step)
        elif loss:
            rate = _RATE.search(line)
            if len(self._shapes) < _MANY_SHAPES:
                self._shapes.add(_FIGURE.sub("#", line))
            told = Progress(
                step, number(loss[1]), number(rate[1]) if rate else None, stamp=stamp_of(line)
            )
            self._book.progress(told)
        if validation or _ACCURACY.search(line):
            self._evaluated(line, step)

    def _evaluated(self, line: str, step: int) -> None:
        loss, accuracy = _VALIDATION.search(line), _ACCURACY.search(line)
        found = number(accuracy[1]) if accuracy else None
        scores = {"accuracy": found} if found is not None else {}
        self._book.evaluated(number(loss[1]) if loss else None, scores, step)
        self._book.at(stamp_of(line))

    def _step_of(self, line: str) -> int | None:
        """Within an epoch where the line names both; epochs alone where no line names steps."""
        step, epoch = _STEP.search(line), _EPOCH.search(line)
        if step is None:
            if epoch is None or self._has_steps:
                return None
            self._has_steps, self._words = False, {"epoch"}
            self._book.run.steps_wanted = whole(epoch[2]) or self._book.run.steps_wanted
            return int(epoch[1])
        if self._has_steps is False:
            return None
        self._has_steps = True
        self._words.add(step[0].split()[0].strip(":=#[(").rstrip("0123456789:=").lower())
        index, size = int(step[1]), whole(step[2])
        if epoch is not None and size and index <= size:
            self._book.run.steps_per_epoch = size
            first = 1 if self._first_epoch(int(epoch[1])) else 0
            return (int(epoch[1]) - first) * size + index
        return index

    def _first_epoch(self, epoch: int) -> bool:
        """Whether epochs count from 1: known when none was 0."""
        known = self._lowest_epoch
        self._lowest_epoch = epoch if known is None else min(epoch, known)
        return self._lowest_epoch > 0

    def _about(self, line: str) -> None:
        if "Namespace(" in line:
            self._book.run.config |= settings_in(line)
        self._book.look_for_failure(line)

    def finish(self) -> list[ForeignRun]:
        runs = [run for run in self._book.finish() if run.training_loss or run.validation_loss]
        words = " or ".join(sorted(filter(None, self._words))) or "step"
        unit = "" if self._has_steps else ", so what is called a step here is an epoch"
        for run in runs:
            if len(self._shapes) > 1 or not self._has_steps:
                run.world, run.world_how = None, ""  # two lines of a step, not two processes
            run.loader_workers = whole(run.config.get("workers"))
            run.notes.append(
                f"no reader knows this log: {self._num_used:,} of its {self._num_lines:,} lines "
                f"name '{words}' and a loss{unit}; all figures rest on these words, a guess"
            )
        return runs


FORMAT = TextFormat(TOOL, _HINTS, sureness, _Reader, least_lines=3)
