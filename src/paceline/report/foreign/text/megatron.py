"""Megatron-LM, Megatron-DeepSpeed, GPT-NeoX and others that print like it:

     iteration  10/ 500 | consumed samples: 160 | elapsed time per iteration (ms): 500.1 |
       learning rate: 1.5E-4 | global batch size: 16 | lm loss: 9.1E+00 | ... |
     validation loss at iteration 1000 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |

The elapsed time is the mean of the steps since the line before, without evaluations and saves.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "Megatron-LM and relatives"

_STEP = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+|infinity)\s*\|(.*)")
_PART = re.compile(rf"\s*([A-Za-z][\w /().-]*?)\s*:?\s+({NUMBER})\s*$")
_EVALUATED = re.compile(r"validation loss at iteration (\d+)[^|]*\|(.*)")
_ARGUMENT = re.compile(r"^\s{1,4}(\w+) \.{3,} (\S+)")
_WORLD = re.compile(r"using world size:\s*(\d+)")
_PARAMETERS = re.compile(
    r"number of parameters on \(tensor[^)]*\) model parallel rank \([^)]*\):\s*(\d+)"
)


def sureness(line: str) -> float:
    return CERTAIN if "per iteration (ms)" in line and _STEP.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "the mean that it prints for the steps since its last line")
        self._config: dict[str, str] = {}
        self._parts: dict[str, int] = {}
        self._world: int | None = None
        self._length: int | None = None

    def take(self, line: str) -> None:
        if "iteration" in line and (match := _STEP.search(line)):
            self._step(int(match[1]), whole(match[2]), match[3], line)
        elif "validation loss at iteration" in line and (match := _EVALUATED.search(line)):
            values = _parts(match[2])
            loss = next((v for name, v in values.items() if name.endswith("loss value")), None)
            self._book.evaluated(loss, step=int(match[1]))
            self._book.at(stamp_of(line))
        elif "....." in line and (match := _ARGUMENT.match(line)):
            self._config[match[1]] = match[2]
        elif match := _WORLD.search(line):
            self._world = int(match[1])
        elif "number of parameters on" in line:
            # Ranks that print at the same time share a line.
            self._parts |= {match[0]: int(match[1]) for match in _PARAMETERS.finditer(line)}
        else:
            self._book.look_for_failure(line)

    def _step(self, step: int, wanted: int | None, rest: str, line: str) -> None:
        values, book = _parts(rest), self._book
        if "elapsed time per iteration (ms)" not in values:
            return
        losses = [v for name, v in values.items() if name.endswith("loss") and "lowest" not in name]
        rate = values.get("learning rate")
        told = Progress(
            step,
            losses[0] if losses else None,
            rate,
            values["elapsed time per iteration (ms)"] / 1000,
            stamp=stamp_of(line),
        )
        book.progress(told)
        book.run.steps_wanted = wanted
        if batch := whole(values.get("global batch size")):
            book.run.global_batch, book.run.batch_how = batch, "as every line prints it"

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.config = dict(self._config)
            run.loader_workers = whole(self._config.get("num_workers"))
            run.world = self._world or whole(self._config.get("world_size"))
            run.world_how = "the world size that it prints"
            run.num_parameters = sum(self._parts.values()) or None
            length, mean = whole(self._config.get("seq_length")), run.step_times.mean_seconds
            if length and run.global_batch and mean:
                run.unit, run.units_per_second = "token", length * run.global_batch / mean
        return runs


def _parts(text: str) -> dict[str, float]:
    found = {}
    for part in text.split("|"):
        match = _PART.match(part)
        if match and (value := number(match[2])) is not None:
            found[match[1]] = value
    return found


FORMAT = TextFormat(TOOL, ("per iteration (ms)",), sureness, _Reader)
