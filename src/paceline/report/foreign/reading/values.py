"""Numbers and durations as programs print them."""

import re
from typing import Any

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
"""With thousands separated by commas or not."""

_PARTS = re.compile(
    r"(\d+(?:\.\d+)?)\s*(days?|d|hours?|h|minutes?|min|ms|us|m|seconds?|sec|s)\b", re.I
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "mi": 60.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_CLOCK = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$")


def number(value: Any) -> float | None:
    """A figure, also where it was printed as text; None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(str(value).strip().rstrip(",").replace(",", ""))
    except ValueError:
        return None


def whole(value: Any) -> int | None:
    """A count above zero."""
    found = number(value)
    if found is None or not 0 < found < 2**53 or found != int(found):
        return None
    return int(found)


def clock_seconds(text: str) -> float | None:
    """'1 day, 2:03:04', '1:02:03' or '02:03'."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return 86400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)


def duration(text: str) -> float | None:
    """'12.3s', '85ms', '1h 2m 3s' or a clock."""
    parts = _PARTS.findall(text)
    if not parts:
        return clock_seconds(text)
    return sum(float(amount) * _unit(unit.lower()) for amount, unit in parts)


def _unit(name: str) -> float:
    known = name if name in ("ms", "us", "m") else name[0]
    return _SECONDS["mi" if name.startswith("mi") else known]
