"""OpenNMT-py and its successor eole:

    [2020-01-01 12:00:00,123 INFO] Step 50/100000; acc:  3.45; ppl: 8000.12; xent: 8.99;
      lr: 0.00001; 12345/13456 tok/s;     30 sec
    [2020-01-01 13:00:00,123 INFO] Validation perplexity: 45.6
    [2020-01-01 13:00:00,123 INFO] Validation accuracy: 41.2

The seconds count from the begin of training; evaluations are in them. Tokens per second are of the
source and of the target.
"""

import math
import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number
from paceline.report.foreign.run import ForeignRun

TOOL = "OpenNMT-py or eole"

_STEP = re.compile(
    rf"Step\s+(\d+)(?:/\s*(\d+))?;\s+acc:\s*({NUMBER});\s+ppl:\s*({NUMBER});(.*?)"
    rf"({NUMBER})/\s*({NUMBER}) tok/s;\s+({NUMBER}) sec"
)
_ENTROPY = re.compile(rf"xent: *({NUMBER})")
_RATE = re.compile(rf"lr: *({NUMBER})")
_VALID = re.compile(rf"Validation (perplexity|accuracy|xent|BLEU|BLEU score): ({NUMBER})", re.I)
_PARAMETERS = re.compile(r"number of parameters: (\d+)")
_PROCESSES = re.compile(r"world_size[=:'\" ]+(\d+)")


def sureness(line: str) -> float:
    return CERTAIN if "tok/s;" in line and _STEP.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "seconds since training began, between two lines")
        self._last: tuple[int, float] | None = None
        self._was_evaluated = False

    def take(self, line: str) -> None:
        if "tok/s;" in line and (match := _STEP.search(line)):
            self._step(match, line)
        elif "Validation" in line and (match := _VALID.search(line)):
            self._valid(match[1].lower(), number(match[2]))
            self._book.at(stamp_of(line))
        elif match := _PARAMETERS.search(line):
            self._book.run.num_parameters = int(match[1])
        elif match := _PROCESSES.search(line):
            self._book.run.world = int(match[1])
            self._book.run.world_how = "world_size in its settings"
        else:
            self._book.look_for_failure(line)

    def _step(self, match: re.Match[str], line: str) -> None:
        step, perplexity, elapsed = int(match[1]), number(match[4]), number(match[8])
        entropy, rate = _ENTROPY.search(match[5]), _RATE.search(match[5])
        loss = number(entropy[1]) if entropy else None
        if loss is None and perplexity:
            loss = math.log(perplexity)
        accuracy = number(match[3])
        told = Progress(
            step,
            loss,
            number(rate[1]) if rate else None,
            self._seconds_since(step, elapsed),
            None,
            number(match[7]),
            stamp_of(line),
            {"accuracy": accuracy} if accuracy is not None else {},
        )
        self._book.progress(told)
        self._book.run.steps_wanted = int(match[2]) if match[2] else None

    def _seconds_since(self, step: int, elapsed: float | None) -> float | None:
        """An evaluation between two lines is no step."""
        before, is_clean = self._last, not self._was_evaluated
        if elapsed is None:
            return None
        self._last, self._was_evaluated = (step, elapsed), False
        if before is None or step <= before[0] or elapsed < before[1]:
            return elapsed / step if before is None and 0 < step <= 1000 and elapsed else None
        return (elapsed - before[1]) / (step - before[0]) if is_clean else None

    def _valid(self, name: str, value: float | None) -> None:
        self._was_evaluated = True
        if value is None:
            return
        if name == "perplexity":
            self._book.evaluated(math.log(value) if value > 0 else None)
        elif name == "accuracy":
            self._book.evaluated(None, {"accuracy": value})
        elif name.startswith("bleu"):
            self._book.evaluated(None, {"BLEU": value})

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit = "target token"
            if "BLEU" in run.scores:
                run.scores = {"BLEU": run.scores["BLEU"], **run.scores}
        return runs


FORMAT = TextFormat(TOOL, ("tok/s;",), sureness, _Reader)
