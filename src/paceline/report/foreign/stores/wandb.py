"""W&B's folders, offline or synchronised: `run-*.wandb`, and `files/` beside it.

The binary file holds the curves and what wandb saw of the machine; `files/config.yaml` the
settings, `files/wandb-summary.json` the last values, `files/output.log` what was printed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.report.foreign.counters.counters import CPU, DEVICE, POWER, Counters
from paceline.report.foreign.event_files import Scalar
from paceline.report.foreign.reading.values import number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.stores.wandb_records import Record, is_run_file, records
from paceline.report.foreign.tensorboard import run_of_scalars

TOOL = "W&B"
_STEPS = (
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "train/step",
    "iteration",
    "iter",
    "step",
)
"""What programs call their step; `_step` counts the calls of `wandb.log` and is the last resort."""
_SUMMARY = "wandb-summary.json"
_MOST_RUNS = 2000
_MOST_BYTES = 1 << 22


def find(directory: Path) -> list[Path]:
    """Folders of runs, from the folder of one run up to a project with a `wandb` folder."""
    found: dict[Path, None] = {}
    for pattern in ("files", "*/files", "wandb/*/files"):
        for place in sorted(directory.glob(pattern)):
            run = place.parent
            is_run = (place / _SUMMARY).is_file() or next(run.glob("run-*.wandb"), None)
            if is_run and not run.name.startswith("latest-run"):
                found.setdefault(run)
    for file in sorted(directory.glob("run-*.wandb")):
        found.setdefault(file.parent)
    return list(found)[:_MOST_RUNS]


def read(path: Path) -> list[ForeignRun]:
    folder = path.parent if path.is_file() else path
    binary = path if path.is_file() else next(iter(sorted(folder.glob("run-*.wandb"))), None)
    if binary is None or not is_run_file(binary):
        return _by_summary(folder)
    return _by_records(folder, binary)


def _by_records(folder: Path, binary: Path) -> list[ForeignRun]:
    reader = _Reader(folder.name)
    run = run_of_scalars(folder, TOOL, reader.scalars(records(binary)))
    if run is None:
        return _by_summary(folder)
    run.config = reader.config
    run.loader_workers = whole(run.config.get("num_workers", run.config.get("workers")))
    run.has_end = reader.exit_code == 0
    if reader.exit_code:
        run.notes.append(f"W&B says that it ended with exit code {reader.exit_code}")
    if reader.runtime_seconds:
        run.wall_seconds, run.is_wall_whole = reader.runtime_seconds, True
        run.wall_how = "_runtime of its last values, which counts from the begin of the run"
    if reader.counters.samples:
        run.counters.append(reader.counters)
    if reader.is_counting_calls:
        run.notes.append(
            "no value is called a step: what is called a step here is a call of wandb.log"
        )
    return [run]


class _Reader:
    def __init__(self, host: str) -> None:
        self.config: dict[str, Any] = {}
        self.exit_code: int | None = None
        self.counters = Counters(host, "wandb", is_point_in_time=True)
        self.is_counting_calls = False
        self.runtime_seconds: float | None = None
        """From the begin of the run to its last values."""
        self._name: str | None = None

    def scalars(self, found: Iterator[Record]) -> Iterator[Scalar]:
        for record in found:
            if record.kind == "history":
                yield from self._history(record.values)
            elif record.kind == "stats":
                self._stats(record.values)
            elif record.kind == "config":
                self.config |= {k: v for k, v in record.values.items() if k != "_wandb"}
            elif record.kind == "exit":
                self.exit_code = whole(record.values.get("exit_code")) or 0

    def _history(self, values: dict[str, Any]) -> Iterator[Scalar]:
        time = number(values.get("_timestamp"))
        self.runtime_seconds = number(values.get("_runtime")) or self.runtime_seconds
        step = self._step_of(values)
        if time is None or step is None:
            return
        for name, given in values.items():
            value = number(given) if not name.startswith("_") else None
            if value is not None and name != self._name:
                yield Scalar(name, step, time, value)

    def _step_of(self, values: dict[str, Any]) -> int | None:
        if self._name is None:
            self._name = next((name for name in _STEPS if name in values), "_step")
            self.is_counting_calls = self._name == "_step"
        found = number(values.get(self._name))
        return int(found) if found is not None and abs(found) < 2**53 else None

    def _stats(self, values: dict[str, Any]) -> None:
        time = number(values.get("_timestamp"))
        if time is None:
            return
        self._mean(values, time, DEVICE, "gpu.", ".gpu", 0.01)
        self._sum(values, time, POWER, "gpu.", ".powerWatts")
        if (cpu := number(values.get("cpu"))) is not None:
            self.counters.add(CPU, time, cpu / 100)

    def _mean(
        self, values: dict[str, Any], time: float, what: str, head: str, tail: str, scale: float
    ) -> None:
        found = _matching(values, head, tail)
        if found:
            self.counters.add(what, time, scale * sum(found) / len(found))

    def _sum(self, values: dict[str, Any], time: float, what: str, head: str, tail: str) -> None:
        found = _matching(values, head, tail)
        if found:
            self.counters.add(what, time, sum(found))


def _matching(values: dict[str, Any], head: str, tail: str) -> list[float]:
    """'gpu.0.gpu', not 'gpu.process.0.gpu', which is the same device again."""
    found = []
    for name, given in values.items():
        middle = name[len(head) : -len(tail)]
        if name.startswith(head) and name.endswith(tail) and middle.isdecimal():
            value = number(given)
            found += [value] if value is not None else []
    return found


def _by_summary(folder: Path) -> list[ForeignRun]:
    """Without the binary file only the last values are known."""
    values = _json(folder / "files" / _SUMMARY)
    step, seconds = whole(values.get("_step")), number(values.get("_runtime"))
    if step is None:
        return []
    run = ForeignRun(folder, TOOL)
    name = next((name for name in _STEPS if whole(values.get(name))), "_step")
    run.step = whole(values.get(name)) or step
    if seconds:
        run.wall_seconds, run.wall_how = seconds, "_runtime in the summary"
        run.is_wall_whole = True
    scalars = [
        Scalar(key, run.step, 0.0, value)
        for key, given in values.items()
        if not key.startswith("_") and (value := number(given)) is not None
    ]
    last = run_of_scalars(folder, TOOL, scalars)
    if last is not None:
        run.training_loss, run.validation_loss = last.training_loss, last.validation_loss
        run.scores, run.training_scores = last.scores, last.training_scores
    run.notes.append("only the last values are here: the curves are in run-*.wandb, which is not")
    return [run]


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
