"""Keras, versions 1 to 3, by its progress lines:

    Epoch 1/10
    1563/1563 [==============================] - 12s 8ms/step - loss: 1.5 - accuracy: 0.45
      - val_loss: 1.2 - val_accuracy: 0.55
    1563/1563 ━━━━━━━━━━━━━━━━━━━━ 12s 8ms/step - accuracy: 0.45 - loss: 1.5

Only the last line of an epoch counts. Its loss is the mean of the epoch; its time has validation
in it where there is one.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, LIKELY, NO, TextFormat
from paceline.report.foreign.reading.values import NUMBER, number
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tags import meaning_of

TOOL = "Keras"

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


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "what it prints at the end of an epoch, validation included")
        self._epoch = self._epochs = 0
        self._size: int | None = None
        self._is_done = True

    def take(self, line: str) -> None:
        if "Epoch " in line and (match := _EPOCH.match(line)):
            self._epoch, self._epochs = int(match[1]), int(match[2])
            if self._epoch == 1 and self._book.run.step:
                self._book.begin_run()
            self._is_done = False
        elif "loss: " in line and "ETA:" not in line and not self._is_done:
            self._line(line)
        else:
            self._book.look_for_failure(line)

    def _line(self, line: str) -> None:
        if match := _BAR.match(line):
            if match[1] == match[2]:
                self._ended(int(match[2]), match[3])
        elif match := _QUIET.match(line):
            self._ended(int(match[2]) if match[2] else None, f"{match[3]}s {match[4]}{match[5]}")

    def _ended(self, size: int | None, text: str) -> None:
        """A line of an epoch may be printed once more when validation is over."""
        values = {name: number(value) for name, value in _VALUE.findall(text)}
        run = self._book.run
        each = _EACH.search(text)
        if each and each[3] == "sample":
            size = None  # the bar counts samples, not steps
        per_epoch = size or 1
        took = _seconds(text)
        if run.step and run.step == self._epoch * per_epoch:
            self._validated(values, run.step)
            return
        if took:
            run.wall_seconds = (run.wall_seconds or 0.0) + took
            run.wall_how = "the times of its epochs, added up"
        seconds = _step_seconds(took, per_epoch, each)
        rate = values.get("lr", values.get("learning_rate"))
        told = Progress(self._epoch * per_epoch, values.get("loss"), rate, seconds)
        self._book.progress(told._replace(scores=_scores(values, False)))
        run = self._book.run
        run.steps_per_epoch, run.steps_wanted = size, self._epochs * per_epoch
        if size is None:
            told_by = "the log does not count steps: what is called a step here is an epoch"
            run.notes += [told_by] if told_by not in run.notes else []
        self._validated(values, run.step)

    def _validated(self, values: dict[str, float | None], step: int) -> None:
        if any(name.startswith("val_") for name in values):
            self._book.evaluated(values.get("val_loss"), _scores(values, True), step)
            self._is_done = True

    def finish(self) -> list[ForeignRun]:
        return self._book.finish()


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
