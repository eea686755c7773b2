"""Writing a run directory: append-only event lines and small files that are never half there."""

import json
import os
import time
from pathlib import Path
from typing import Any

from paceline.errors import UserError


class EventFile:
    """JSON lines that reach the kernel one by one, so that a killed process loses none."""

    def __init__(self, path: Path, attempt: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.attempt = attempt
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            os.write(self._handle, b"\n")

    def write(self, kind: str, **fields: Any) -> None:
        event = {"kind": kind, "time": round(time.time(), 6), "attempt": self.attempt, **fields}
        os.write(self._handle, json.dumps(_rounded(event)).encode() + b"\n")

    def close(self) -> None:
        os.close(self._handle)


def _rounded(value: Any) -> Any:
    """Microseconds are enough for phases, and short lines keep long runs small."""
    if isinstance(value, dict):
        return {
            name: {k: round(v, 6) for k, v in inner.items()} if name == "phases" else inner
            for name, inner in value.items()
        }
    return value


def write_file(path: Path, text: str) -> None:
    """Replace a small file as a whole: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def prepare_directory(path: Path) -> None:
    """Make the run directory, or say clearly why it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write the run directory {path}: {error.strerror}",
            "name another with --run, or change its permissions",
        ) from error
