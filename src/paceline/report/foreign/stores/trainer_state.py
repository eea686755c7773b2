"""Hugging Face's `trainer_state.json`: every logged value with its step, and the run's time."""

import json
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.report.foreign.reading.trainer_logs import Entry, epoch_of, fill_from_entries
from paceline.report.foreign.reading.values import number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "Hugging Face Trainer"
NAME = "trainer_state.json"
_LARGEST_BYTES = 64 << 20


def find(directory: Path) -> list[Path]:
    """The state of the run, else that of its newest checkpoint."""
    top = directory / NAME
    if top.is_file():
        return [top]
    below = [file for file in directory.glob(f"*/{NAME}") if file.is_file()]
    checkpoints = [file for file in below if file.parent.name.startswith("checkpoint-")]
    if checkpoints:
        return [max(checkpoints, key=lambda file: _number_of(file.parent.name))]
    return below


def _number_of(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def is_state(path: Path) -> bool:
    return path.suffix == ".json" and path.name.endswith(NAME)


def read(path: Path) -> list[ForeignRun]:
    state = _load(path)
    history = state.get("log_history")
    entries = [_entry(one) for one in history if isinstance(one, dict)] if history else []
    run = ForeignRun(path, TOOL)
    run.steps_wanted = whole(state.get("max_steps"))
    run.batch_per_process = whole(state.get("train_batch_size"))
    per_epoch = _steps_per_epoch(entries)
    fill_from_entries(run, entries, per_epoch, run.steps_wanted)
    run.step = max(run.step, whole(state.get("global_step")) or 0)
    if every := whole(state.get("save_steps")):
        run.config["save_checkpoint_steps"] = every
    return [run] if run.step else []


def _load(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _LARGEST_BYTES:
        raise UserError(
            f"{path} is larger than {_LARGEST_BYTES >> 20} MB",
            "give the event files of the same run (`runs/`), which are read as a stream",
        )
    try:
        state = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not whole JSON", "copy it again") from None
    return state if isinstance(state, dict) else {}


def _entry(given: dict[str, Any]) -> Entry:
    found = {str(name): number(value) for name, value in given.items()}
    values = {name: value for name, value in found.items() if value is not None}
    step = values.pop("step", None)
    is_known = step is not None and 0 <= step < 2**53
    return Entry(values, epoch_of(values), int(step or 0) if is_known else None)


def _steps_per_epoch(entries: list[Entry]) -> float | None:
    """By the entry furthest on, whose rounded epoch matters least."""
    known = [(e.step, e.epoch) for e in entries if e.step and e.epoch and e.epoch >= 1]
    if not known:
        return None
    step, epoch = known[-1]
    return step / epoch
