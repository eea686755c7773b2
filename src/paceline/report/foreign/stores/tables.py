"""Tables of values by step or by epoch: Lightning's metrics.csv, Keras's CSVLogger (which is often
called training.log), timm's summary.csv. They hold no times."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.report.foreign.reading.values import number
from paceline.report.foreign.run import Curve, ForeignRun
from paceline.report.foreign.tags import by_importance, meaning_of
from paceline.report.foreign.text_lines import text_lines

LIGHTNING = "Lightning's metrics.csv"
_EPOCHS_ONLY = "a table of values by epoch (Keras's CSVLogger, timm)"
_HPARAMS = "hparams.yaml"
_COLUMN = re.compile(r"^[\w ./@%()\[\]-]{1,120}$")
_SUFFIXES = {".csv", ".tsv", ".log", ".txt"}
_SEPARATORS = (",", ";", "\t")
_PATTERNS = (
    *("metrics.csv", "*/metrics.csv", "*/*/metrics.csv", "history*.csv", "summary.csv"),
    *("training*.log", "*log*.csv"),
)
_MOST_BYTES_OF_SETTINGS = 1 << 20
_MOST_FILES = 500


def find(directory: Path) -> list[Path]:
    """Lightning's folders of versions, or a table in the folder itself."""
    found = [file for pattern in _PATTERNS for file in sorted(directory.glob(pattern))]
    return [file for file in dict.fromkeys(found[:_MOST_FILES]) if is_table(file)]


def is_table(path: Path) -> bool:
    """Whether the first line names an epoch or a step and something that is learned."""
    names = _header(path) if path.suffix in _SUFFIXES and path.is_file() else []
    is_placed = "epoch" in names or "step" in names
    return is_placed and any(_is_learned(name) for name in names)


def _is_learned(name: str) -> bool:
    meaning = meaning_of(name)
    return meaning is not None and meaning.kind in ("loss", "score")


def _header(path: Path) -> list[str]:
    first = next(text_lines(path), "")
    names = [name.strip().strip('"') for name in first.split(_separator(first))]
    return [n.lower() for n in names] if all(map(_COLUMN.match, names)) else []


def _separator(header: str) -> str:
    return max(_SEPARATORS, key=header.count)


def read(path: Path) -> list[ForeignRun]:
    has_steps = "step" in _header(path)
    place = path.parent if path.name == "metrics.csv" else path
    table = _Table(place, has_steps)
    for row in _rows(path):
        table.take(row)
    runs = [run for run in table.runs if run.step]
    for run in runs:
        _complete(run, has_steps, path)
    return runs


def _complete(run: ForeignRun, has_steps: bool, path: Path) -> None:
    if not has_steps:
        run.notes.append("the table counts epochs: what is called a step here is an epoch")
    run.notes.append("a table of values holds no times; give the event files or the printed log")
    first, spacing = run.training_loss.first, run.training_loss.spacing
    if first and spacing and first[0] > 2 * spacing:
        run.first_step = first[0]
    run.scores = {name: run.scores[name] for name in by_importance(run.scores)}
    run.config = _settings(path.parent / _HPARAMS)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    lines = text_lines(path)
    header = next(lines, "")
    separator = _separator(header)
    names = [name.strip().lower() for name in next(csv.reader([header], delimiter=separator), [])]
    for row in csv.reader(lines, delimiter=separator):
        if len(row) == len(names):  # a torn line loses itself only
            yield dict(zip(names, row, strict=True))


class _Table:
    """A table of epochs may have been gone on with by another run, which counts them anew."""

    def __init__(self, path: Path, has_steps: bool) -> None:
        self._path, self._has_steps = path, has_steps
        self.runs: list[ForeignRun] = []
        self._begin()

    def _begin(self) -> None:
        self._first_epoch: int | None = None
        self._run = ForeignRun(self._path, LIGHTNING if self._has_steps else _EPOCHS_ONLY)
        self.runs.append(self._run)

    def take(self, row: dict[str, str]) -> None:
        at = number(row.get("step" if self._has_steps else "epoch"))
        if at is None or at != at or at < 0:  # noqa: PLR0124  (not a number)
            return
        step = int(at)
        if not self._has_steps:
            step = self._step_of_epoch(step)
        self._run.step = max(self._run.step, step)
        for name, text in row.items():
            value = number(text) if text else None
            if value is not None and name not in ("step", "epoch"):
                self._value(name, step, value)

    def _step_of_epoch(self, epoch: int) -> int:
        """Epochs count from 0 or from 1."""
        if self._first_epoch is not None and epoch <= self._first_epoch and self._run.step > 1:
            self._begin()
        if self._first_epoch is None:
            self._first_epoch = epoch
        return epoch + 1 - min(self._first_epoch, 1)

    def _value(self, name: str, step: int, value: float) -> None:
        run, meaning = self._run, meaning_of(name)
        if name.endswith("_epoch") and name.startswith("train"):
            return  # the mean of what was logged step by step
        if meaning is None:
            return
        if meaning.kind == "loss":
            _add(run.validation_loss if meaning.is_validation else run.training_loss, step, value)
        elif meaning.kind == "rate":
            _add(run.rate, step, value)
        elif meaning.kind == "score":
            scores = run.scores if meaning.is_validation else run.training_scores
            _add(scores.setdefault(meaning.name, Curve()), step, value)


def _add(curve: Curve, step: int, value: float) -> None:
    """Of two columns of one meaning the first counts."""
    if curve.last is None or curve.last[0] != step:
        curve.add(step, value)


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES_OF_SETTINGS:
        return {}
    import yaml  # noqa: PLC0415  (not needed for any other log)

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}  # objects of Python are never made
    return {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
