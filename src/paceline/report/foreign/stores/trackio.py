"""trackio's SQLite files: one per project, with metrics, system metrics and settings as JSON."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.report.foreign.counters.counters import CPU, DEVICE, POWER, Counters
from paceline.report.foreign.event_files import Scalar
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tensorboard import run_of_scalars

TOOL = "trackio"
_MAGIC = b"SQLite format 3\x00"
_MOST_RUNS = 200


def find(directory: Path) -> list[Path]:
    return [file for file in sorted(directory.glob("*.db")) if is_project(file)]


def is_project(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
        with closing(_open(path)) as store:
            return {"run_name", "step", "metrics"} <= _columns(store, "metrics")
    except (OSError, sqlite3.Error):
        return False


def _open(path: Path) -> sqlite3.Connection:
    """Read only, and without the journal that a reader would make."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _columns(store: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in store.execute(f"PRAGMA table_info({table})")}


def read(path: Path) -> list[ForeignRun]:
    try:
        with closing(_open(path)) as store:
            names = store.execute("SELECT DISTINCT run_name FROM metrics LIMIT ?", (_MOST_RUNS,))
            runs = [_run(store, path, str(name)) for (name,) in names.fetchall()]
    except sqlite3.Error as error:
        raise UserError(
            f"cannot read {path}: {error}", "copy it while nothing writes to it"
        ) from None
    return [run for run in runs if run is not None]


def _run(store: sqlite3.Connection, path: Path, name: str) -> ForeignRun | None:
    run = run_of_scalars(path, TOOL, _scalars(store, name))
    if run is None:
        return None
    run.notes.append(f"the run '{name}'")
    if _columns(store, "configs"):
        query = "SELECT config FROM configs WHERE run_name = ? LIMIT 1"
        for (text,) in store.execute(query, (name,)):
            run.config = {k: v for k, v in _values(text).items() if not k.startswith("_")}
    run.loader_workers = whole(run.config.get("num_workers", run.config.get("workers")))
    if _columns(store, "system_metrics"):
        counters = _counters(store, name)
        run.counters += [counters] if counters.samples else []
    return run


def _scalars(store: sqlite3.Connection, name: str) -> Iterator[Scalar]:
    query = "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY step, id"
    for step, stamp, text in store.execute(query, (name,)):
        time = stamp_of(str(stamp))
        if time is None or not isinstance(step, int):
            continue
        for tag, given in _values(text).items():
            value = number(given)
            if value is not None:
                yield Scalar(tag, step, time, value)


def _counters(store: sqlite3.Connection, name: str) -> Counters:
    counters = Counters(name, "trackio", is_point_in_time=True)
    query = "SELECT timestamp, metrics FROM system_metrics WHERE run_name = ? ORDER BY id"
    for stamp, text in store.execute(query, (name,)):
        time, values = stamp_of(str(stamp)), _values(text)
        if time is None:
            continue
        shares = _all(values, "utilization")
        watts = _all(values, "power")
        if shares:
            counters.add(DEVICE, time, sum(shares) / len(shares) / 100)
        if watts:
            counters.add(POWER, time, sum(watts))
        if (cpu := number(values.get("cpu/utilization"))) is not None:
            counters.add(CPU, time, cpu / 100)
    return counters


def _all(values: dict[str, Any], what: str) -> list[float]:
    """'gpu/0/utilization' of every device."""
    found = [
        number(given)
        for tag, given in values.items()
        if (parts := tag.split("/"))[0] == "gpu" and len(parts) == 3 and parts[2] == what
    ]
    return [value for value in found if value is not None]


def _values(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
