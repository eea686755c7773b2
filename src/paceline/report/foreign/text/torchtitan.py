"""torchtitan:

    [titan] 2025-01-01 12:00:00,123 - root - INFO - step: 10  loss: 7.1  grad_norm: 1.2
      memory: 40GiB(50%)  tps: 5,900  tflops: 345.2  mfu: 34.9%

`tps` are tokens per second of one device. The time of a step is that between the stamps.
"""

import math
import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "torchtitan"

_STEP = re.compile(rf"\bstep:\s*(\d+)\s+loss:\s*({NUMBER})\b(.*)")
_VALUE = re.compile(rf"\b(tps|mfu|grad_norm|lr):\s*({NUMBER})")
_VALIDATION = re.compile(rf"\bvalidate step:\s*(\d+)\s+loss:\s*({NUMBER})")
_PARAMETERS = re.compile(r"\bsize:\s*([\d,]+) total parameters")
_WANTED = re.compile(r"total steps (\d+)")
_MESH = re.compile(r"Building (?:\d+-D )?device mesh with (.*)")
_SIZES = re.compile(r"\[([\d, ]+)\]")
_PARALLEL = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp)=(\d+)")
"""Experts lie across the same devices, so `ep` counts none of its own."""
_LOCAL = re.compile(r"local batch size (\d+), global batch size (\d+)")
_DEVICE = re.compile(r"(?:CUDA|XPU|HIP) capacity: (.+?) with")


def sureness(line: str) -> float:
    return CERTAIN if "tps:" in line and _STEP.search(line) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "time stamps of the lines")
        self._mfu: float | None = None

    def take(self, line: str) -> None:
        book = self._book
        if "loss:" in line and (match := _VALIDATION.search(line)):
            book.evaluated(number(match[2]), step=int(match[1]))
            book.at(stamp_of(line))
        elif "loss:" in line and (match := _STEP.search(line)):
            values = {name: number(value) for name, value in _VALUE.findall(match[3])}
            self._mfu = values.get("mfu", self._mfu)
            told = Progress(
                int(match[1]),
                number(match[2]),
                values.get("lr"),
                units_per_second=values.get("tps"),
                stamp=stamp_of(line),
            )
            book.progress(told)
        else:
            self._about(line)

    def _about(self, line: str) -> None:
        run = self._book.run
        if match := _PARAMETERS.search(line):
            run.num_parameters = whole(match[1])
        elif match := _LOCAL.search(line):
            run.batch_per_process, run.global_batch = int(match[1]), int(match[2])
            run.batch_how = "as it prints before it trains"
            if wanted := _WANTED.search(line):
                run.steps_wanted = int(wanted[1])
        elif match := _DEVICE.search(line):
            run.devices = (match[1],)
        elif match := _MESH.search(line):
            run.world, run.world_how = _num_devices(match[1]), "the device mesh that it builds"
        elif "Training completed" in line:
            run.has_end = True
        else:
            self._book.look_for_failure(line)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit, of_one = "token", run.units_per_second
            run.units_per_second = of_one * run.world if of_one and run.world else None
            if of_one:
                told = f"its tokens per second (`tps`) are those of one device: {of_one:,.0f}"
                run.notes.append(told)
            if self._mfu:
                told = f"its own figure of model FLOPs utilisation (MFU): {self._mfu:g} %"
                run.notes.append(told)
        return runs


def _num_devices(mesh: str) -> int | None:
    """'pp=2, dp_replicate=1, dp_shard=4, ...' or "['dp', 'tp'], [4, 2]"."""
    sizes = [int(size) for _, size in _PARALLEL.findall(mesh)]
    if not sizes and (match := _SIZES.search(mesh)):
        sizes = [int(size) for size in match[1].split(",") if size.strip()]
    return math.prod(sizes) or None if sizes else None


FORMAT = TextFormat(TOOL, ("tps:",), sureness, _Reader)
