"""Appending event lines to a run directory: whole lines, one `write` each, never an error."""

import errno
import fcntl
import json
import math
import os
import time
from typing import Any


class EventFile:
    """What cannot be written is dropped, and the next line that can be says how many there were."""

    def __init__(self, path: str, attempt: int) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._attempt = attempt
        self._num_lost = 0
        self._is_torn = self._ends_inside_a_line()

    def _ends_inside_a_line(self) -> bool:
        size = os.fstat(self._handle).st_size
        return size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"

    def is_taken(self) -> bool:
        """Whether another process writes it: two trainings in one run would be mixed up."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        return False

    def has_attempt(self) -> bool:
        """Whether this attempt has begun here already, in a process that is gone."""
        mark = b'"kind": "begin"'
        with open(os.dup(self._handle), "rb") as file:  # noqa: PTH123
            file.seek(0)
            return any(
                mark in line and json.loads(line).get("attempt") == self._attempt for line in file
            )

    def write(self, kind: str, lists: dict[str, list[float]] | None = None, **fields: Any) -> None:
        """`lists` may be long: they are written with seven digits, and fast."""
        now = fields.pop("time", None) or time.time()
        event = {"kind": kind, "time": round(now, 6), "attempt": self._attempt, **fields}
        if self._num_lost:
            event["num_lost"] = self._num_lost
        line = (json.dumps(event)[:-1] + _as_text(lists or {}) + "}\n").encode()
        try:
            written = os.write(self._handle, b"\n" + line if self._is_torn else line)
            self._is_torn = written < len(line)
            self._num_lost = self._num_lost + 1 if self._is_torn else 0
        except OSError:
            self._num_lost += 1

    def close(self) -> None:
        os.close(self._handle)


def _as_text(lists: dict[str, list[float]]) -> str:
    """`, "name": [...]` of each; a number that is none stands there as json writes it."""
    parts = []
    for name, numbers in lists.items():
        if math.isfinite(sum(numbers)):
            told = ",".join(["%.7g" % number for number in numbers])  # noqa: UP031  (fastest)
        else:
            told = json.dumps(numbers)[1:-1]
        parts.append(f', "{name}": [{told}]')
    return "".join(parts)
