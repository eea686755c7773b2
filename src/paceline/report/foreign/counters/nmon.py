"""nmon's files: cores, memory and traffic of every interface, means of its interval.

    AAA,host,node1          AAA,interval,5
    NET,Network I/O node1,lo-read-KB/s,eth0-read-KB/s,lo-write-KB/s,eth0-write-KB/s
    ZZZZ,T0001,12:00:00,01-JAN-2021
    CPU_ALL,T0001,81.2,3.1,0.4,15.3,,8

Its KB are 1,024 bytes. The loopback interface and virtual ones are left out.
"""

import re
from pathlib import Path

from paceline.report.foreign.counters.counters import CPU, MEMORY, RECEIVED, SENT, Counters
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import number
from paceline.report.foreign.text_lines import text_lines

TOOL = "nmon"
_KB, _MB = 1 << 10, 1 << 20
_VIRTUAL = ("lo", "vmnet", "docker", "veth", "virbr", "br-", "tun", "tap", "cni", "flannel")
"""What goes through these goes through a real interface as well, or nowhere."""
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def recognises(line: str) -> bool:
    return line.startswith(("AAA,progname", "AAA,host,", "AAA,interval,"))


def read(path: Path) -> list[Counters]:
    reader = _Reader(path)
    for line in text_lines(path):
        reader.take(line.split(","))
    reader.flush()
    return [reader.counters] if reader.counters.samples else []


class _Reader:
    def __init__(self, path: Path) -> None:
        self.counters = Counters(path.stem, TOOL)
        self._time: float | None = None
        self._columns: dict[str, list[str]] = {}
        self._held: dict[str, float] = {}

    def take(self, parts: list[str]) -> None:
        kind = parts[0]
        if kind == "AAA" and len(parts) > 2:
            self._about(parts[1], parts[2])
        elif kind == "ZZZZ" and len(parts) > 3:
            self.flush()
            self._time = _moment(parts[2], parts[3])
        elif len(parts) > 2 and parts[1].startswith("T") and parts[1][1:].isdecimal():
            self._values(kind, [number(part) for part in parts[2:]])
        elif kind in ("CPU_ALL", "NET", "MEM"):
            self._columns[kind] = parts[2:]

    def _about(self, name: str, value: str) -> None:
        if name == "host":
            self.counters.host = value
        elif name == "interval":
            self.counters.period_seconds = number(value)

    def _values(self, kind: str, values: list[float | None]) -> None:
        row = dict(zip(self._columns.get(kind, []), values, strict=False))
        if kind == "CPU_ALL" and (idle := row.get("Idle%")) is not None:
            wait = row.get("Wait%") or 0.0
            self._held[CPU] = max(0.0, 100 - idle - wait) / 100
        elif kind == "NET":
            self._traffic(row)
        elif kind == "MEM":
            self._memory(row)

    def _traffic(self, row: dict[str, float | None]) -> None:
        for what, word in ((RECEIVED, "-read-KB/s"), (SENT, "-write-KB/s")):
            found = {
                name.removesuffix(word): value
                for name, value in row.items()
                if name.endswith(word) and not name.startswith(_VIRTUAL) and value is not None
            }
            if found:
                self._held[what] = _KB * sum(found.values())
                self.counters.interface = ", ".join(found)

    def _memory(self, row: dict[str, float | None]) -> None:
        total, free = row.get("memtotal"), row.get("memfree")
        cached = (row.get("cached") or 0.0) + (row.get("buffers") or 0.0)
        if total and free is not None:
            self.counters.memory_total_bytes = total * _MB
            self._held[MEMORY] = (total - free - cached) * _MB

    def flush(self) -> None:
        """All lines of a moment follow its ZZZZ line."""
        if self._time is not None:
            for what, value in self._held.items():
                self.counters.add(what, self._time, value)
        self._held = {}


def _moment(clock: str, date: str) -> float | None:
    parts = date.strip().split("-")
    if len(parts) != 3 or parts[1].upper() not in _MONTHS or not re.fullmatch("[0-9]+", parts[0]):
        return None
    month = _MONTHS.index(parts[1].upper()) + 1
    return stamp_of(f"{parts[2]}-{month:02d}-{int(parts[0]):02d} {clock}")
