"""Which tool printed a log, by its lines; and handing the lines to that tool's reader."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.report.foreign.failures import Failures
from paceline.report.foreign.reading.contract import CERTAIN, LineReader, TextFormat
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import who_printed

_ALL_OF_THE_FIRST = 20_000
_THEN_ONE_IN = 10
_ENOUGH = 3
"""So many certain lines end the search."""
_MOST_RANKS = 64
"""That print progress."""
_MOST_PROCESSES = 4096
_MOST_WAITING = 200
"""Lines of a process that has printed no progress yet: its settings, mostly."""


def find_format(
    lines: Iterable[str], formats: Sequence[TextFormat]
) -> tuple[TextFormat, float] | None:
    """The surest; of equally sure ones that with more lines, then the first of the list."""
    hinted = re.compile("|".join(re.escape(hint) for f in formats for hint in f.hints))
    best = [0.0] * len(formats)
    count = [0] * len(formats)
    for place, line in enumerate(lines):
        if place > _ALL_OF_THE_FIRST and place % _THEN_ONE_IN:
            continue
        if hinted.search(line) is None:
            continue
        for index, one in enumerate(formats):
            sure = one.sureness(line) if any(map(line.__contains__, one.hints)) else 0.0
            if sure > best[index]:
                best[index], count[index] = sure, 0
            count[index] += sure > 0 and sure == best[index]
            if sure >= CERTAIN and count[index] >= _ENOUGH:
                return one, sure
    enough = [i for i, one in enumerate(formats) if best[i] and count[i] >= one.least_lines]
    if not enough:
        return None
    found = max(enough, key=lambda i: (best[i], count[i], -i))
    return formats[found], best[found]


def read_lines(path: Path, lines: Iterable[str], kind: TextFormat) -> dict[str, list[ForeignRun]]:
    """The runs that each process printed, by what a launcher wrote before its lines."""
    processes = _Processes(path, kind)
    for line in lines:
        processes.take(line)
    return processes.finish()


class _Processes:
    """Of hundreds of processes mostly one prints progress: only such get a reader. What another
    printed before is kept for it, and how another ended counts for the run."""

    def __init__(self, path: Path, kind: TextFormat) -> None:
        self._path, self._kind = path, kind
        self._readers: dict[str, LineReader] = {}
        self._waiting: dict[str, list[str]] = {}
        self._failures = Failures()

    def take(self, line: str) -> None:
        who = who_printed(line)
        reader = self._readers.get(who) or self._reader_for(who, line)
        if reader is not None:
            reader.take(line)
            if self._failures.found and self._kind.sureness(line):
                self._failures = Failures()  # the run outlived it
        else:
            self._wait(who, line)

    def _reader_for(self, who: str, line: str) -> LineReader | None:
        if len(self._readers) >= _MOST_RANKS or (who and not self._kind.sureness(line)):
            return None
        self._readers[who] = reader = self._kind.new_reader(self._path)
        for earlier in self._waiting.pop(who, []):
            reader.take(earlier)
        return reader

    def _wait(self, who: str, line: str) -> None:
        self._failures.look_at(line)
        held = self._waiting.setdefault(who, [])
        if len(held) < _MOST_WAITING and len(self._waiting) <= _MOST_PROCESSES:
            held.append(line)

    def finish(self) -> dict[str, list[ForeignRun]]:
        found = {who: reader.finish() for who, reader in self._readers.items()}
        found = {who: runs for who, runs in found.items() if runs}
        for runs in found.values():
            if runs[-1].failure is None and not runs[-1].has_end:
                runs[-1].failure = self._failures.found
        return found
