"""JoeyNMT, and the validations.txt that it writes beside its log:

    2021-01-01 12:00:00,123 - INFO - joeynmt.training - Epoch   1, Step:      100, Batch Loss:
      5.12, Batch Acc: 0.01, Tokens per Sec:    12345, Lr: 0.000300
    ... Evaluation result (greedy): bleu: 12.3, loss: 2.31, ppl: 10.1, acc: 0.51, ...
    Steps: 1000	Loss: 12345.0	PPL: 45.0	bleu: 1.23	LR: 0.0003	*

The batch loss is that of the last batch alone. Steps are timed by the stamps.
"""

import math
import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number
from paceline.report.foreign.run import ForeignRun

TOOL = "JoeyNMT"

_STEP = re.compile(
    rf"Epoch\s+(\d+),? Step:\s+(\d+),? Batch Loss:\s+({NUMBER}),?(.*?)Tokens per Sec:\s+({NUMBER})"
    rf"(?:,\s+Lr:\s+({NUMBER}))?"
)
_EVALUATED = re.compile(
    r"(?:Validation|Evaluation) result(?: \([^)]*\))?(?: at epoch\s+\d+,? step\s+(\d+))?"
    r":?(?=.*\bppl:)(.*)"
)
_SAVED = re.compile(rf"^Steps: (\d+)\s+(Loss: .*?)LR: ({NUMBER})")
_VALUE = re.compile(rf"\b([A-Za-z]+): +({NUMBER})")
_SECONDS = re.compile(rf"duration: ({NUMBER})s|({NUMBER})\[sec\]")
_PARAMETERS = re.compile(r"Total params: (\d+)")
_NAMES = {"bleu": "BLEU", "chrf": "chrF", "acc": "accuracy"}


def sureness(line: str) -> float:
    if "Tokens per Sec:" in line and _STEP.search(line):
        return CERTAIN
    return CERTAIN if line.startswith("Steps: ") and _SAVED.match(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "time stamps of the lines")

    def take(self, line: str) -> None:
        book = self._book
        if "Tokens per Sec:" in line and (match := _STEP.search(line)):
            told = Progress(
                int(match[2]),
                number(match[3]),
                number(match[6]),
                None,
                None,
                number(match[5]),
                stamp_of(line),
            )
            book.progress(told)
        elif "result" in line and (match := _EVALUATED.search(line)):
            self._evaluated(int(match[1]) if match[1] else None, match[2])
            book.at(stamp_of(line))
        elif line.startswith("Steps: ") and (match := _SAVED.match(line)):
            step, rate = int(match[1]), number(match[3])
            self._evaluated(step, match[2])
            if rate is not None:
                book.run.rate.add(step, rate)
        elif match := _PARAMETERS.search(line):
            book.run.num_parameters = int(match[1])
        else:
            book.look_for_failure(line)

    def _evaluated(self, step: int | None, text: str) -> None:
        values = {name.lower(): number(value) for name, value in _VALUE.findall(text)}
        scores = {
            _NAMES[name]: value
            for name, value in values.items()
            if name in _NAMES and value is not None
        }
        took = [number(one or other) or 0.0 for one, other in _SECONDS.findall(text)]
        seconds = sum(took) if took else None
        # Its loss is a sum over all words in most versions; the perplexity is of a word in all.
        perplexity = values.get("ppl")
        loss = math.log(perplexity) if perplexity and perplexity > 0 else None
        self._book.evaluated(loss, scores, step, seconds)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit = "target token"
        return runs


FORMAT = TextFormat(TOOL, ("Tokens per Sec:", "Steps: "), sureness, _Reader)
