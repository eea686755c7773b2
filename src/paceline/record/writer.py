"""Writing a run directory: append-only event lines and small files that are never half there."""

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.files import whole_file, write_whole

_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_AWAY = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENODEV)
_MOST_KEPT = 10_000


class EventFile:
    """JSON lines that reach the kernel one by one, so that a killed process loses none.

    A disk that is full does not end a run: what cannot be written is dropped, and the next event
    that can says how many there were. Shared storage that is away comes back: lines wait for it.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._waiting: list[bytes] = []
        self._was_away = False
        self.attempt = attempt
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._is_torn = self._ends_inside_a_line()
        self._num_lost = 0
        self._lock = threading.Lock()  # the saver's thread writes here as well

    def _ends_inside_a_line(self) -> bool:
        size = os.fstat(self._handle).st_size
        return size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"

    def write(self, kind: str, **fields: Any) -> None:
        event = {"kind": kind, "time": round(time.time(), 6), "attempt": self.attempt, **fields}
        with self._lock:
            if self._num_lost:
                event["num_lost"] = self._num_lost
            line = json.dumps(_rounded(event)).encode() + b"\n"
            self._waiting.append(line)
            try:
                self._append_waiting()
            except OSError as error:
                self._was_away = error.errno in _AWAY
                if not self._was_away or len(self._waiting) > _MOST_KEPT:
                    self._waiting.pop()
                    self._num_lost += 1
                if error.errno not in (*_AWAY, *_DISK_TROUBLE):
                    raise
            else:
                self._num_lost = 0

    def _append_waiting(self) -> None:
        if self._was_away:  # a file opened before the storage went away may stay broken
            fresh = os.open(self._path, os.O_RDWR | os.O_APPEND)
            os.close(self._handle)
            self._handle, self._was_away = fresh, False
        while self._waiting:
            line = self._waiting[0]
            self._append(b"\n" + line if self._is_torn else line)
            self._waiting.pop(0)

    def _append(self, content: bytes) -> None:
        """The kernel may take only the beginning; whatever then follows must start a new line."""
        self._is_torn = True
        while content:
            content = content[os.write(self._handle, content) :]
        self._is_torn = False

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
    """Replace a small file of a run directory: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def write_private(path: Path, text: str) -> None:
    """The same of a file that nobody but this user may read."""
    with whole_file(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text.encode())


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
