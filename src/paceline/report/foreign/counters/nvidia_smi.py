"""What `nvidia-smi` logs: `--query-gpu=... --format=csv -l`, `dmon`, or its table in a loop.

Its utilisation is the share of the last sample period (a sixth of a second to a second) in which
any kernel ran, so each value is a glimpse, and a busy value does not mean that the chip was full.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from paceline.report.foreign.counters.counters import DEVICE, DEVICE_MEMORY, POWER, Counters
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import number
from paceline.report.foreign.text_lines import text_lines

TOOL = "nvidia-smi"
_MIB = 1 << 20
_CLOCK = re.compile(r"^\w{3} (\w{3}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})")
_TABLE = re.compile(r"(\d+)W / +\d+W \| +(\d+)MiB / +(\d+)MiB \| +(\d+)%")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DMON_STAMP = re.compile(r"^(\d{4})(\d\d)(\d\d)\s+(\d\d):(\d\d):(\d\d)\s+(.*)")
Row = tuple[float | None, str, dict[str, float]]
"""When, which device, what was found."""


def recognises(line: str) -> bool:
    return (
        ("utilization.gpu" in line and "," in line)
        or (line.startswith(("# gpu", "#Date")) and " sm " in line)
        or line.startswith("| NVIDIA-SMI ")
    )


def read(path: Path) -> list[Counters]:
    counters = Counters(path.stem, TOOL, is_point_in_time=True)
    names: dict[str, None] = {}
    for place, moment in enumerate(_moments(_rows(path))):
        rows = [values for _, _, values in moment]
        time = next((t for t, _, _ in moment if t is not None), float(place))
        names |= dict.fromkeys(name for _, name, _ in moment if name)
        for what, scale in ((DEVICE, 1 / len(rows)), (POWER, 1.0), (DEVICE_MEMORY, 1.0)):
            found = [values[what] for values in rows if what in values]
            if len(found) == len(rows):
                counters.add(what, time, scale * sum(found))
    if not any(held[0][0] > 1e8 for held in counters.samples.values()):
        counters.notes.append("its lines have no time stamps, so all of them are taken")
    counters.device_names = tuple(f"device {name}" for name in names)
    return [counters] if counters.samples else []


def _moments(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """A device that comes again begins the next moment."""
    held: list[Row] = []
    for row in rows:
        if any(row[1] == name for _, name, _ in held):
            yield held
            held = []
        held.append(row)
    if held:
        yield held


def _rows(path: Path) -> Iterator[Row]:
    names: list[str] = []
    form = time = None
    for line in text_lines(path):
        if "utilization.gpu" in line and "," in line:
            form, names = "csv", [part.strip() for part in line.split(",")]
        elif line.startswith(("# gpu", "#Date")) and " sm " in line:
            form, names = "dmon", line.lstrip("# ").split()
        elif match := _CLOCK.match(line):
            form, time = "table", _clock(match)
            place = 0
        elif form == "csv":
            yield from _csv(names, line)
        elif form == "dmon" and not line.startswith("#"):
            yield from _dmon(names, line)
        elif form == "table" and (match := _TABLE.search(line)):
            power, used, _, share = (float(part) for part in match.groups())
            yield time, str(place), {POWER: power, DEVICE_MEMORY: used * _MIB, DEVICE: share / 100}
            place += 1


def _clock(match: re.Match[str]) -> float | None:
    if match[1] not in _MONTHS:
        return None
    month = _MONTHS.index(match[1]) + 1
    return stamp_of(f"{match[6]}-{month:02d}-{int(match[2]):02d} {match[3]}:{match[4]}:{match[5]}")


def _csv(names: list[str], line: str) -> Iterator[Row]:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != len(names):
        return
    row = dict(zip(names, parts, strict=True))
    values: dict[str, float] = {}
    for name, text in row.items():
        value = number(text.split(" ")[0])
        if value is None:
            continue
        if name.startswith("utilization.gpu"):
            values[DEVICE] = value / 100
        elif name.startswith("power.draw"):
            values[POWER] = value
        elif name.startswith("memory.used"):
            values[DEVICE_MEMORY] = value * _MIB
    device = next((row[k] for k in ("index", "pci.bus_id", "gpu_bus_id", "uuid") if k in row), "0")
    if values:
        yield stamp_of(row.get("timestamp", "")), device, values


def _dmon(names: list[str], line: str) -> Iterator[Row]:
    time = None
    if match := _DMON_STAMP.match(line):
        date = f"{match[1]}-{match[2]}-{match[3]} {match[4]}:{match[5]}:{match[6]}"
        time, line = stamp_of(date), match[7]
    columns = [name for name in names if name not in ("Date", "Time")]
    row = dict(zip(columns, line.split(), strict=False))
    share, power = number(row.get("sm")), number(row.get("pwr"))
    values = {DEVICE: share / 100} if share is not None else {}
    if power is not None:
        values[POWER] = power
    if share is not None and row.get("gpu", "").isdecimal():
        yield time, row["gpu"], values
