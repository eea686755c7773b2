"""What a reader of a printed log is. A new one needs nothing else.

A `TextFormat` names a tool, says of single lines how surely they are the tool's, and makes a fresh
`LineReader` for a log. The reader takes lines one by one, in order, and gives the runs at the end;
a log is never held in memory. The lines that it is given have no colours and no launcher's prefix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.report.foreign.run import ForeignRun

CERTAIN = 1.0
"""Nobody else prints such a line."""
LIKELY = 0.6
"""A family of tools prints such lines, or a part of the line is missing."""
POSSIBLE = 0.3
"""Many programs print this; only read this way when nothing better fits."""
NO = 0.0


class LineReader(Protocol):
    def take(self, line: str) -> None: ...

    def finish(self) -> list[ForeignRun]: ...


@dataclass(frozen=True)
class TextFormat:
    name: str
    hints: tuple[str, ...]
    """One of these words is in every line that `sureness` is above 0 for: looking for plain words
    is ten times faster than for patterns."""
    sureness: Callable[[str], float]
    """Of one line, from 0 to 1."""
    new_reader: Callable[[Path], LineReader]
    least_lines: int = 1
    """So many must be found before the log is read this way."""
