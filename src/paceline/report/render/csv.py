"""The curves of a run as a table, for scripts and spreadsheets."""

import csv
import math
from pathlib import Path
from typing import IO

from paceline.record.schema import RunDirectory
from paceline.record.story import read_story
from paceline.terminal import printable

_COLUMNS = ["step", "epochs", "loss", "rate", "units_per_second", "seconds", "gradient_norm"]


def write_csv(run: Path, file: IO[str]) -> None:
    names, rows = _table(run)
    writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def read_curves(run: Path) -> dict[str, list[float]]:
    """The same table by columns; what a row lacks is NaN."""
    names, rows = _table(run)
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _table(run: Path) -> tuple[list[str], list[dict[str, object]]]:
    """One row per recorded interval; scores stand in the row of the step they were taken at."""
    rows: dict[int, dict[str, object]] = {}
    score_names: dict[str, None] = {}
    story = read_story(RunDirectory(run))
    for event in story.of_kind("steps"):
        rate = event["num_units"] / max(event["seconds"], 1e-9)
        rows[event["step"]] = {**event, "units_per_second": round(rate, 3)}
    for event in story.of_kind("score"):
        split = event["split"]
        named = {printable(f"{split}_{name}"): value for name, value in event["scores"].items()}
        score_names.update(dict.fromkeys(named))
        rows.setdefault(event["step"], {"step": event["step"]}).update(named)
    return [*_COLUMNS, *score_names], [rows[step] for step in sorted(rows)]
