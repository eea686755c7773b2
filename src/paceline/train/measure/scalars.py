"""TensorBoard's writer, made to outlive storage that is away for a while.

The writer opens its file by name for every record, in a thread that dies at the first failure.
Points since the last flush are therefore kept, and written again, once, when the storage is back.
"""

import time
from pathlib import Path
from typing import Any

_FLUSH_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 2.0
_MOST_KEPT = 50_000

Point = tuple[str, str, Any, int]


class Scalars:
    def __init__(self, directory: Path, purge_step: int) -> None:
        self._directory = directory
        self._writer: Any = _open(directory, purge_step)
        self._kept: list[Point] = []
        self._flushed = self._tried = time.monotonic()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self._add(("add_scalar", name, value, step))

    def add_text(self, name: str, text: str, step: int) -> None:
        self._add(("add_text", name, text, step))

    def close(self) -> None:
        """Twice at most: what a dead thread had still to write is written by a new one. If that
        fails too, the same numbers are in the events."""
        for _ in range(2):
            self._tried = time.monotonic() - _TRY_AGAIN_SECONDS
            try:
                if self._writer is None:
                    self._reopen()
                if self._writer is not None:
                    self._writer.close()
                return
            except OSError:
                self._writer = None

    def _add(self, point: Point) -> None:
        self._kept.append(point)
        if len(self._kept) > 2 * _MOST_KEPT:
            self._kept = self._kept[-_MOST_KEPT:]
        try:
            if self._writer is None:
                self._reopen()
            else:
                self._write([point])
        except OSError:
            self._writer, self._tried = None, time.monotonic()

    def _reopen(self) -> None:
        """Points that were written after all are dropped by the new file's first step."""
        due = time.monotonic() - self._tried >= _TRY_AGAIN_SECONDS
        if due and self._kept and self._directory.is_dir():
            self._tried = time.monotonic()
            self._writer = _open(self._directory, min(step for _, _, _, step in self._kept))
            self._write(list(self._kept))

    def _write(self, points: list[Point]) -> None:
        for call, name, value, step in points:
            getattr(self._writer, call)(name, value, step)
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._writer.flush()
            self._flushed = time.monotonic()
            self._kept = []


def _open(directory: Path, purge_step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (slow to import)

    return SummaryWriter(str(directory), purge_step=purge_step)
