"""Why a run stopped, where the log says so."""

import re

from paceline.report.foreign.run import ForeignRun

_ERROR = re.compile(r"^\W*([\w.]*(?:Error|Exception|Interrupt|SystemExit)(?::.*|\s*$))")
_SIGNAL = re.compile(r"((?:exited on|received|caught) signal.*|Killed|Segmentation fault.*)", re.I)
HINTS = ("Error", "Exception", "Interrupt", "SystemExit", "signal", "Killed", "fault")
"""One of these is in every line that could tell of a failure."""
_LONGEST = 200


class Failures:
    """The last line of a traceback counts only when no step follows it."""

    def __init__(self) -> None:
        self._told = ""

    def look_at(self, line: str) -> None:
        if not any(map(line.__contains__, HINTS)):
            return
        if match := _ERROR.match(line) or _SIGNAL.search(line):
            self._told = match[1].strip()[:_LONGEST]

    def went_on(self, run: ForeignRun) -> None:
        """Another start into the same log, or a warning: the run itself kept training."""
        if self._told:
            run.notes.append(f"in the middle of the log, while training went on: {self._told}")
        self._told = ""

    def ended(self, run: ForeignRun) -> None:
        if self._told:
            run.notes.append(f"it ended with: {self._told}")
        self._told = ""
