"""Which tool printed a log, by its lines; and handing the lines to that tool's reader."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.report.foreign.reading.contract import CERTAIN, LineReader, TextFormat
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import who_printed

_ALL_OF_THE_FIRST = 20_000
_THEN_ONE_IN = 10
_ENOUGH = 3
"""So many certain lines end the search."""
_MOST_RANKS = 64


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
    readers: dict[str, LineReader] = {}
    for line in lines:
        who = who_printed(line)
        reader = readers.get(who)
        if reader is None:
            if len(readers) >= _MOST_RANKS:
                continue
            reader = readers[who] = kind.new_reader(path)
        reader.take(line)
    found = {who: reader.finish() for who, reader in readers.items()}
    return {who: runs for who, runs in found.items() if runs}
