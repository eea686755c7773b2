"""Keras, versions 1 to 3, by its progress lines:

    Epoch 1/10
    1563/1563 [==============================] - 12s 8ms/step - loss: 1.5 - accuracy: 0.45
      - val_loss: 1.2 - val_accuracy: 0.55
    1563/1563 ━━━━━━━━━━━━━━━━━━━━ 12s 8ms/step - accuracy: 0.45 - loss: 1.5

Only the last line of an epoch counts. Its loss is the mean of the epoch; its time has validation
in it where there is one. A training of one epoch has no heading, as an evaluation has none.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low

from paceline.report.foreign.failures import failure_in
from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, LIKELY, NO, TextFormat
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, number
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tags import meaning_of

TOOL = "Keras"
_HOW = "what it prints at the end of an epoch, validation included"
_MOST_FAILURES = 20
_ONE_EPOCH = (
    "there is no line 'Epoch 1/10' or the like: Keras prints none where it trains for one epoch, "
    "so this is taken for one; of a log that was cut it may be another"
)

_EPOCH = re.compile(r"^\s*Epoch (\d+)/(\d+)\s*$")
_BAR = re.compile(r"^\s*(\d+)/(\d+) (?:\[=*>?\.*\]|[━ \u2500-\u257f]+)(?: -)? (.*)")
_QUIET = re.compile(r"^\s*(?:(\d+)/(\d+) )?- (\d+)s(?: (\d+\w+/\w+))?( - \w+: .*)")
_TOOK = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s\b|(\d+):(\d+)(?::(\d+))?(?= )")
_EACH = re.compile(r"(\d+)(us|ms|s)/(step|sample|epoch)")
_VALUE = re.compile(rf"\b([A-Za-z]\w*): ({NUMBER})(?= - |\s*$)")


def sureness(line: str) -> float:
    match = _BAR.match(line)
    if match and "loss: " in line and match[1] == match[2]:
        return CERTAIN
    match = _QUIET.match(line)
    return LIKELY if match and "loss: " in line else NO


@dataclass(frozen=True)
class _Bar:
    """The last line of an epoch."""

    epoch: int
    """Of the heading before it."""
    size: int | None
    seconds: float | None
    """Of the whole epoch."""
    step_seconds: float | None
    values: dict[str, float | None]

    @property
    def is_validated(self) -> bool:
        return any(name.startswith("val_") for name in self.values)


@dataclass
class _Start:
    """One call of `fit`, by one process or by several that print into the same log."""

    num_epochs: int = 0
    headings: list[int] = field(default_factory=list)
    bars: list[_Bar] = field(default_factory=list)

    def begin_epoch(self, epoch: int, num_epochs: int) -> None:
        if self.headings and epoch > self.headings[-1] + 1:
            self._place_again(self.headings[-1], epoch)
        self.num_epochs = num_epochs
        self.headings.append(epoch)

    def _place_again(self, last: int, epoch: int) -> None:
        """Headings between the two were lost: without as many bars, nobody knows which is whose."""
        bars: list[_Bar] = []
        while self.bars and self.bars[-1].epoch == last:
            bars.insert(0, self.bars.pop())
        if len(bars) == epoch - last:
            self.bars += [replace(bar, epoch=last + n) for n, bar in enumerate(bars)]

    def add(self, bar: _Bar) -> None:
        """A line of an epoch may be printed once more when validation is over."""
        last = self.bars[-1] if self.bars else None
        if last and last.epoch == bar.epoch and bar.is_validated and not last.is_validated:
            self.bars.pop()
        self.bars.append(bar)

    @property
    def num_processes(self) -> int:
        """Each prints every heading; one that is there twice by accident makes no second."""
        return median_low(Counter(self.headings).values()) if self.headings else 1

    @property
    def is_mixed(self) -> bool:
        """Whether a bar may belong to another epoch than the heading before it says."""
        return self.num_processes > 1 and self.headings != sorted(self.headings)

    def epochs(self) -> list[_Bar]:
        """One bar for every epoch. Of processes that step together each prints every heading, and
        ends an epoch before any ends the next one."""
        processes, first = self.num_processes, min(self.headings, default=1)
        if processes == 1:
            return list({bar.epoch: bar for bar in reversed(self.bars)}.values())[::-1]
        return [
            replace(bar, epoch=first + place)
            for place, bar in enumerate(self.bars[processes - 1 :: processes])
        ]


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._book = Book(path, TOOL, _HOW)
        self._starts = [_Start()]
        self._headless: list[_Bar] = []
        self._failures: list[str] = []

    def take(self, line: str) -> None:
        start = self._starts[-1]
        if "Epoch " in line and (match := _EPOCH.match(line)):
            if int(match[1]) == 1 and start.bars:
                start = _Start()
                self._starts.append(start)
            start.begin_epoch(int(match[1]), int(match[2]))
            self._failures = []
        elif "loss: " in line and "ETA:" not in line:
            self._line(line)
        elif failure_in(line):
            self._failures = [*self._failures[-_MOST_FAILURES:], line]

    def _line(self, line: str) -> None:
        if match := _BAR.match(line):
            if match[1] == match[2]:
                self._ended(int(match[2]), match[3])
        elif match := _QUIET.match(line):
            self._ended(int(match[2]) if match[2] else None, f"{match[3]}s {match[4]}{match[5]}")

    def _ended(self, size: int | None, text: str) -> None:
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        each = _EACH.search(text)
        if each and each[3] == "sample":
            size = None  # the bar counts samples, not steps
        took, start = _seconds(text), self._starts[-1]
        seconds = _step_seconds(took, size or 1, each)
        bar = _Bar(start.headings[-1] if start.headings else 1, size, took, seconds, values)
        if start.headings:
            start.add(bar)
        elif bar.is_validated:
            self._headless.append(bar)

    def finish(self) -> list[ForeignRun]:
        book, is_first = self._book, True
        has_headings = bool(self._starts[-1].headings)
        alone = [_Start(1, [1], [bar]) for bar in self._headless]
        for start in self._starts if has_headings else alone:
            if not start.bars:
                continue
            if not is_first:
                book.begin_run()
            is_first = False
            self._tell(start)
        for line in self._failures:
            book.look_for_failure(line)
        runs = book.finish()
        for run in [] if has_headings else runs:
            run.notes.append(_ONE_EPOCH)
        return runs

    def _tell(self, start: _Start) -> None:
        if start.is_mixed:
            self._tell_mixed(start)
            return
        book = self._book
        for bar in start.epochs():
            size = bar.size or 1
            rate = bar.values.get("lr", bar.values.get("learning_rate"))
            told = Progress(bar.epoch * size, bar.values.get("loss"), rate, bar.step_seconds)
            book.progress(told._replace(scores=_scores(bar.values, False)))
            if bar.is_validated:
                book.evaluated(bar.values.get("val_loss"), _scores(bar.values, True), told.step)
            self._tell_length(bar, start.num_epochs)
        if start.num_processes > 1:
            book.run.world = start.num_processes
            book.run.world_how = "the processes that printed every line"

    def _tell_length(self, bar: _Bar, num_epochs: int) -> None:
        run = self._book.run
        if bar.seconds:
            run.wall_seconds = (run.wall_seconds or 0.0) + bar.seconds
            run.wall_how = "the times of its epochs, added up"
        run.steps_per_epoch, run.steps_wanted = bar.size, num_epochs * (bar.size or 1)
        if bar.size is None:
            told_by = "the log does not count steps: what is called a step here is an epoch"
            run.notes += [told_by] if told_by not in run.notes else []

    def _tell_mixed(self, start: _Start) -> None:
        """Times are of some epoch in any case; losses and scores would be put at wrong steps."""
        run = self._book.run
        size = start.bars[-1].size or 1
        each = [bar.step_seconds for bar in start.bars if bar.step_seconds]
        run.step, run.steps_per_epoch = max(start.headings) * size, start.bars[-1].size
        run.steps_wanted = start.num_epochs * size
        if each:
            self._book.pace.epochs = {0: EpochMean(run.step, sum(each) / len(each), None)}
        run.notes.append(
            "several programs printed into this log at the same time, without a name before their "
            "lines: losses and scores cannot be told apart, so they are left out"
        )


def _step_seconds(took: float | None, size: int, each: re.Match[str] | None) -> float | None:
    """From whole seconds of an epoch or from whole milliseconds of a step: what is rounded less."""
    by_epoch = took / size if took else None
    if each is None or each[3] != "step" or not int(each[1]):
        return by_epoch
    by_step = int(each[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[each[2]]
    return by_step if not took or int(each[1]) > took else by_epoch


def _scores(values: dict[str, float | None], is_validation: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        meaning = meaning_of(name)
        if meaning is None or meaning.kind != "score" or value is None:
            continue
        if meaning.is_validation == is_validation:
            found.setdefault(meaning.name, value)
    return found


def _seconds(text: str) -> float | None:
    match = _TOOK.search(text)
    if match is None:
        return None
    if match[3]:
        return 3600.0 * int(match[1] or 0) + 60 * int(match[2] or 0) + int(match[3])
    parts = [int(part) for part in match.groups()[3:] if part]
    return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))


FORMAT = TextFormat(TOOL, ("loss: ",), sureness, _Reader)
