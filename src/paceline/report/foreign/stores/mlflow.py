"""MLflow's local store: `mlruns/EXPERIMENT/RUN/{meta.yaml, metrics/, params/}`.

A file below `metrics` holds lines of a time stamp in milliseconds, a value and a step.
"""

from collections.abc import Iterator
from pathlib import Path

from paceline.report.foreign.event_files import Scalar
from paceline.report.foreign.reading.stamps import in_words
from paceline.report.foreign.reading.values import number, whole
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.tensorboard import run_of_scalars
from paceline.report.foreign.text_lines import text_lines

TOOL = "MLflow"
_MOST_RUNS = 2000
_STATES = {"1": "running", "3": "finished", "4": "failed", "5": "killed"}


def find(directory: Path) -> list[Path]:
    """Runs are recognised by their two files; a store may be given at any of its levels."""
    found = []
    for pattern in (".", "*", "*/*", "mlruns/*/*"):
        for place in directory.glob(pattern) if pattern != "." else [directory]:
            if (place / "meta.yaml").is_file() and (place / "metrics").is_dir():
                found.append(place)
    return found[:_MOST_RUNS]


def read(path: Path) -> list[ForeignRun]:
    run = run_of_scalars(path, TOOL, sorted(_scalars(path), key=lambda one: one.time))
    if run is None:
        return []
    run.config = {p.name: _first_line(p) for p in _files(path / "params")}
    meta = _meta(path / "meta.yaml")
    begin, end = number(meta.get("start_time")), number(meta.get("end_time"))
    if begin is not None and end is not None and end > begin:
        run.wall_seconds = (end - begin) / 1000
        run.wall_how, run.is_wall_whole = "start_time and end_time of the run", True
        run.began = f"{in_words(begin / 1000)} UTC"
    state = _STATES.get(meta.get("status", ""), meta.get("status", "").lower())
    run.has_end = state == "finished"
    if state in ("failed", "killed"):
        run.notes.append(f"MLflow says that the run was {state}")
    run.loader_workers = whole(run.config.get("num_workers") or run.config.get("workers"))
    return [run]


def _scalars(path: Path) -> Iterator[Scalar]:
    folder = path / "metrics"
    for file in _files(folder):
        if file.relative_to(folder).parts[0] == "system":
            continue  # counters of the machine
        for line in text_lines(file):
            parts = line.split()
            if len(parts) == 3 and (scalar := _scalar(file, folder, parts)) is not None:
                yield scalar


def _scalar(file: Path, folder: Path, parts: list[str]) -> Scalar | None:
    stamp, value, step = number(parts[0]), number(parts[1]), number(parts[2])
    if stamp is None or value is None or step is None:
        return None
    return Scalar(file.relative_to(folder).as_posix(), int(step), stamp / 1000, value)


def _files(folder: Path) -> list[Path]:
    return sorted(f for f in folder.rglob("*") if f.is_file()) if folder.is_dir() else []


def _first_line(path: Path) -> str:
    """Written without an end of line."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(200).strip()


def _meta(path: Path) -> dict[str, str]:
    """A flat file: values stay text, so that nothing of YAML is interpreted."""
    pairs = (line.partition(": ") for line in text_lines(path))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
