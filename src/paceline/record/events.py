"""Event lines: the one parser, and the one definition of a valid event.

An event is a JSON object with `kind`, `attempt` and `time`. A field of another type than the schema
says, or a number out of all bounds, is as if it were not there, and so is a null; an event that
then lacks what its kind needs is no event. So whoever reads a field that the schema names finds its
type or nothing. Fields that the schema does not name are passed on as they are.

Readers never fail on a run that was killed: a torn line is skipped, a missing file is empty.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from paceline.record.fields import FieldChecks
from paceline.record.schema import FIELDS, NEEDED

Event = dict[str, Any]

_NUM_WINDOWS = 64
_decode = json.JSONDecoder().decode
"""As `json.loads`, which tries to find out the encoding of every line."""
_CHECKS = FieldChecks(FIELDS)
_NEEDED = {kind: ("time", "attempt", *names) for kind, names in NEEDED.items()}


def read_events(path: Path) -> list[Event]:
    """All valid events of a file."""
    return list(parse_events(spread_lines(path)))


def read_probes(path: Path, most_bytes: int) -> list[Event]:
    """A host's probes; of a long run, evenly spread ones."""
    lines = spread_lines(path, most_bytes)
    return [event for event in parse_events(lines) if event["kind"] == "probe"]


def parse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        event = parse_event(line)
        if event is not None:
            yield event


def parse_event(line: bytes) -> Event | None:
    """None for half a line, left by a kill, and for what is no valid event."""
    try:
        found = _decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return check_event(found)


def check_event(found: Any) -> Event | None:
    if type(found) is not dict:
        return None
    event = _CHECKS.of(found)
    if "kind" not in event:
        return None
    for name in _NEEDED.get(event["kind"], ("time", "attempt")):
        if name not in event:
            return None
    return event


def spread_lines(path: Path, most_bytes: int | None = None) -> Iterator[bytes]:
    """The lines of a file, or of windows spread evenly over one that is bigger than asked for."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if most_bytes is None or size <= most_bytes:
                yield from file
                return
            window = most_bytes // _NUM_WINDOWS
            for number in range(_NUM_WINDOWS):
                begin = (size - window) * number // (_NUM_WINDOWS - 1)
                yield from _lines_between(file, begin, begin + window)
    except OSError:
        return


def share_read(path: Path, most_bytes: int | None) -> float:
    """Of the bytes of a file, by `spread_lines`."""
    try:
        size = path.stat().st_size
    except OSError:
        return 1.0
    return 1.0 if most_bytes is None or size <= most_bytes else most_bytes / size


def _lines_between(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    if begin:
        file.readline()  # the rest of a line that began before
    while file.tell() < end and (line := file.readline()):
        yield line
