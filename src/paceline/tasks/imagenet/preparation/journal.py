"""Files that only grow, and a journal of how far they count.

A unit of work appends to any of the files and is then entered in the journal, with the sizes that
the files had. Whatever a killed process wrote after its last entry is cut off when it is opened
again, so that going on gives the same bytes as never having stopped. What is in the files is not
known here.
"""

import json
import os
from pathlib import Path
from typing import IO, Any, Final

from paceline.files import flush_filesystem

_JOURNAL_NAME: Final = "journal.jsonl"
_BUFFER_BYTES: Final = 1 << 17


class Journal:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.entries: list[dict[str, Any]] = []
        self.sizes: dict[str, int] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._grown: set[str] = set()
        self._load()
        self._done = {self._name_of(entry) for entry in self.entries}
        self._journal = (directory / _JOURNAL_NAME).open("ab")

    def path(self, name: str) -> Path:
        return self._directory / name

    def is_done(self, split: str, unit: str) -> bool:
        return (split, unit) in self._done

    def append(self, name: str, content: bytes) -> None:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = self.path(name).open("ab", buffering=_BUFFER_BYTES)
        file.write(content)
        self._grown.add(name)

    def commit(self, entry: dict[str, Any]) -> None:
        """The files first, and to the disk: an entry may never promise what is not there."""
        sizes = {}
        for name in sorted(self._grown):
            self._files[name].flush()
            sizes[name] = self._files[name].tell()
        flush_filesystem(self._directory)
        line = json.dumps({**entry, "sizes": sizes}) + "\n"
        self._journal.write(line.encode())
        self._journal.flush()
        os.fsync(self._journal.fileno())
        self.sizes |= sizes
        self._grown.clear()
        self.entries.append(entry)
        self._done.add(self._name_of(entry))

    def close(self) -> None:
        for file in (*self._files.values(), self._journal):
            file.close()
        self._files.clear()

    @staticmethod
    def _name_of(entry: dict[str, Any]) -> tuple[str, str]:
        return entry["split"], entry["unit"]

    def _load(self) -> None:
        path = self.path(_JOURNAL_NAME)
        content = path.read_bytes() if path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            entry = json.loads(line)
            self.sizes |= entry.pop("sizes")
            self.entries.append(entry)
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        for file in self._directory.iterdir():
            if file.name != _JOURNAL_NAME and file.stat().st_size > self.sizes.get(file.name, 0):
                os.truncate(file, self.sizes.get(file.name, 0))
