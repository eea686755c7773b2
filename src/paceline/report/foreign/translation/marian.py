"""Marian:

    [2020-01-01 12:00:00] Ep. 1 : Up. 1000 : Sen. 50,000 : Cost 9.12345 : Time 123.45s :
      12345.67 words/s : L.r. 1.0000e-05
    [2020-01-01 12:30:00] [valid] Ep. 1 : Up. 5000 : bleu : 23.4 : new best

`Time` is that of all updates since the last line. `Cost` is summed or meant as the user asked; a
validation loss is told where it is a mean over words.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "Marian"

_UPDATE = re.compile(
    rf"Ep\. ([\d.]+) : Up\. ([\d,]+) : Sen\. [\d,]+ : Cost ({NUMBER})(.*?) : Time ({NUMBER})s"
    rf"(?: : ({NUMBER}) words/s)?(.*)"
)
_VALID = re.compile(rf"\[valid\]\s+(?:Ep\. [\d.]+ : )?Up\. ([\d,]+) : ([\w-]+) : ({NUMBER})")
_RATE = re.compile(rf"L\.r\. ({NUMBER})")
_DEVICES = re.compile(r"\[comm\].*?(\d+) (?:GPU|device)|Using .*?(\d+) (?:GPUs|devices)")
_SETTING = re.compile(
    r"\[config\] (after-batches|after-epochs|disp-freq|valid-freq|save-freq|type|optimizer|"
    r"mini-batch|seed|early-stopping|precision): (\S+)"
)
_NAMES = {"bleu": "BLEU", "bleu-detok": "BLEU", "bleu-segmented": "BLEU", "translation": "BLEU"}
_LOSSES = ("ce-mean-words",)


def sureness(line: str) -> float:
    return CERTAIN if _UPDATE.search(line) or _VALID.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "its `Time` since the last line, over the updates between")
        self._settings: dict[str, str] = {}
        self._before: int | None = None
        self._distances: dict[int, int] = {}

    def take(self, line: str) -> None:
        if "Up. " in line and (match := _UPDATE.search(line)):
            self._update(match, line)
        elif "[valid]" in line and (match := _VALID.search(line)):
            self._valid(whole(match[1]) or 0, match[2], number(match[3]))
            self._book.at(stamp_of(line))
        elif "[config]" in line and (match := _SETTING.search(line)):
            self._settings[match[1]] = match[2]
        elif "Training finished" in line:
            self._book.run.has_end = True
        else:
            self._book.look_for_failure(line)

    def _update(self, match: re.Match[str], line: str) -> None:
        step, seconds = whole(match[2]) or 0, number(match[5])
        count = self._updates_of(step)
        rate = _RATE.search(match[7])
        told = Progress(
            step,
            number(match[3]),
            number(rate[1]) if rate else None,
            seconds / count if seconds and count else None,
            None,
            number(match[6]),
            stamp_of(line),
            num_steps=count,
        )
        self._book.progress(told)
        self._before = step

    def _updates_of(self, step: int) -> int | None:
        """Some versions print a line more at the end of an epoch, so the distance counts; but
        where lines were cut out, a line still tells of no more than `disp-freq` updates."""
        every = whole(self._settings.get("disp-freq", "").rstrip("u"))
        if self._before is None or step <= self._before:
            return every if every and every <= step else None
        distance = step - self._before
        if every is None:
            self._distances[distance] = self._distances.get(distance, 0) + 1
            every = max(self._distances, key=lambda d: (self._distances[d], -d))
        return min(distance, every)

    def _valid(self, step: int, name: str, value: float | None) -> None:
        if value is None:
            return
        if name in _LOSSES:
            self._book.evaluated(value, step=step)
        elif name in _NAMES:
            self._book.evaluated(None, {_NAMES[name]: value}, step)
        elif name == "chrf":
            self._book.evaluated(None, {"chrF": value}, step)
        else:
            self._book.evaluated(None, {}, step)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit = "source word"
            run.config |= self._settings
            run.steps_wanted = whole(self._settings.get("after-batches"))
        return runs


FORMAT = TextFormat(TOOL, ("Up. ",), sureness, _Reader)
