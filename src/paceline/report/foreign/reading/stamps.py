"""Time stamps at the begin of lines, as seconds of whatever clock wrote them."""

import re
from datetime import UTC, datetime

_STAMP = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[ T:_](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
_FAR = 96
"""A date further inside a line than that is part of what it says."""


def stamp_of(line: str) -> float | None:
    match = _STAMP.search(line, 0, _FAR)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    fraction = float(f"0.{match[7]}") if match[7] else 0.0
    return moment.timestamp() + fraction - _zone_seconds(match[8])


def _zone_seconds(zone: str | None) -> float:
    if not zone or zone == "Z":
        return 0.0
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    return sign * (3600 * int(digits[:2]) + 60 * int(digits[2:]))


def in_words(stamp: float) -> str:
    """As it was printed: a log rarely says whose clock it is."""
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M")
