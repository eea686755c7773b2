"""Jupyter notebooks: what a cell printed is a log, what all of them contain tells settings.

Everything that was printed goes through all readers of text, cell by cell: two cells that train are
two runs. Hugging Face's trainer draws a table
in notebooks instead of printing; it is read here.
"""

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.report.foreign.reading.settings import settings_in
from paceline.report.foreign.reading.trainer_logs import Entry, fill_from_entries
from paceline.report.foreign.reading.values import clock_seconds, number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import plain_lines

_LARGEST_BYTES = 64 << 20
_TRAINER = "Hugging Face Trainer in a notebook"
_BAR = re.compile(r"\[\s*(\d+)/(\d+)\s+([\d:]+)[^\],]*,\s*Epoch\s+([\d.]+)/(\d+)\]")
_CELL = re.compile(r"<t([hd])[^>]*>(.*?)</t[hd]>", re.DOTALL)
_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_COLUMNS = {"training loss": "loss", "validation loss": "eval_loss"}
ReadLines = Callable[[Path, list[str]], list[ForeignRun]]


def is_notebook(path: Path) -> bool:
    return path.suffix == ".ipynb"


def read(path: Path, read_lines: ReadLines) -> list[ForeignRun]:
    cells = _cells(path)
    code = "\n".join(_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "code")
    runs: list[ForeignRun] = []
    for number_of_cell, cell in enumerate(cells):
        outputs = [out for out in cell.get("outputs") or [] if isinstance(out, dict)]
        found = [run for table in _tables(outputs) if (run := _table_run(path, table)) is not None]
        for run in found or read_lines(path, list(_lines(outputs))):
            run.part = number_of_cell
            _add_settings(run, code)
            runs.append(run)
    return runs


def _cells(path: Path) -> list[dict[str, Any]]:
    if path.stat().st_size > _LARGEST_BYTES:
        raise UserError(
            f"{path} is larger than {_LARGEST_BYTES >> 20} MB",
            "save it without its pictures, or copy the printed text into a file",
        )
    try:
        book = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not a whole notebook", "save it again") from None
    cells = book.get("cells") if isinstance(book, dict) else None
    if cells is None and isinstance(book, dict):  # before version 4
        sheets = [sheet for sheet in book.get("worksheets") or [] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets for cell in sheet.get("cells") or []]
    return [cell for cell in cells or [] if isinstance(cell, dict)]


def _text(given: Any) -> str:
    if isinstance(given, list):
        return "".join(str(part) for part in given)
    return str(given) if isinstance(given, str) else ""


def _lines(outputs: list[dict[str, Any]]) -> Iterator[str]:
    for output in outputs:
        data = output.get("data")
        text = _text(output.get("text"))
        if not text and isinstance(data, dict):
            text = _text(data.get("text/plain"))
        if output.get("output_type") in ("error", "pyerr"):
            text = f"{output.get('ename', 'Error')}: {_text(output.get('evalue'))}"
        yield from plain_lines(text)


def _tables(outputs: list[dict[str, Any]]) -> Iterator[str]:
    for output in outputs:
        data = output.get("data")
        text = _text(data.get("text/html")) if isinstance(data, dict) else ""
        if "<table" in text and "Training Loss" in text:
            yield text


def _table_run(path: Path, text: str) -> ForeignRun | None:
    rows = [
        [html.unescape(_TAG.sub("", cell)).strip() for _, cell in _CELL.findall(row)]
        for row in _ROW.findall(text)
    ]
    rows = [row for row in rows if row]
    bar = _BAR.search(text)
    if len(rows) < 2 or bar is None:
        return None
    step, total, epochs = int(bar[1]), int(bar[2]), int(bar[5])
    names = [name.lower() for name in rows[0]]
    per_epoch = total / epochs if epochs else None
    entries = _on_ends_of_epochs([_entry(names, row) for row in rows[1:]], per_epoch)
    run = ForeignRun(path, _TRAINER)
    run.steps_wanted = total
    fill_from_entries(run, [entry for entry in entries if entry.step], per_epoch, total)
    run.step, run.has_end = step, step >= total
    if seconds := clock_seconds(bar[3]):
        run.wall_seconds, run.wall_how = seconds, "the time that its progress bar shows"
        run.is_wall_whole = True
        run.step_times.num_steps, run.step_times.total_seconds = step, seconds
        run.step_times.how = "the time of its progress bar over its steps, evaluations included"
    return run


def _on_ends_of_epochs(entries: list[Entry], per_epoch: float | None) -> list[Entry]:
    """Where the table names whole epochs: 0.99 is shown as 0, and nothing is evaluated before."""
    shift = 1 if entries and entries[0].epoch == 0 else 0
    return [
        entry._replace(step=round((entry.epoch + shift) * per_epoch))
        if entry.step is None and entry.epoch is not None and per_epoch
        else entry
        for entry in entries
    ]


def _entry(names: list[str], row: list[str]) -> Entry:
    values: dict[str, float] = {}
    for name, text in zip(names, row, strict=False):
        value = number(text)
        if value is not None:
            values[_COLUMNS.get(name, f"eval_{name.replace(' ', '_')}")] = value
    step, epoch = values.pop("eval_step", None), values.pop("eval_epoch", None)
    values.pop("eval_runtime", None)
    return Entry(values, epoch, round(step) if step is not None else None)


def _add_settings(run: ForeignRun, code: str) -> None:
    found = settings_in(code)
    run.config = {**found, **run.config}
    if run.loader_workers is None:
        run.loader_workers = whole(found.get("workers"))
    else:
        run.config["workers"] = run.loader_workers  # what the program says of itself
    if run.batch_per_process is None and "batch_type" not in code:
        run.batch_per_process = whole(found.get("batch_size"))
