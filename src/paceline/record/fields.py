"""What the values in a run's files may be: a check for each type that the schema names.

A check gives the value, or None for one that cannot be: of another type, no number, or out of all
bounds. Bounds are wide, but sums and squares of what is inside them are finite.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paceline.record.schema import PHASES, UNEXPLAINED, Type

Value = dict[str, Any]
Check = Callable[[Any], Any]

_MOST_PROCESSES = 1_000_000
_MOST_PIDS = 1 << 22
_MOST_COUNTED = 1 << 53
_MOST_SECONDS = 1e10
"""Three hundred years."""
_LAST_TIME = 1e11
_MOST = 1e24
"""Of bytes, operations and rates; sums and squares of such numbers are finite."""
_MOST_MEASURED = 1e100
_KNOWN_PHASES = frozenset(PHASES)


class FieldChecks:
    """The checks of an object's fields; those whose type is not given are passed on as they are."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self._checks = {name: _CHECKS[kind] for name, kind in types.items()}

    def of(self, found: Value) -> Value:
        """Without nulls and what cannot be; the object itself where nothing is wrong with it."""
        checks = self._checks
        for name, value in found.items():
            if value is None or (name in checks and checks[name](value) is not value):
                return self._without_wrong(found)
        return found

    def _without_wrong(self, found: Value) -> Value:
        checks = self._checks
        values = {name: checks[name](v) if name in checks else v for name, v in found.items()}
        return {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> str | None:
    """Half of a surrogate pair is valid JSON, and no output can encode it."""
    if type(value) is not str:
        return None
    return value if value.isprintable() else value.encode(errors="replace").decode()


def _texts(value: Any) -> list[str] | None:
    return [text for each in value if (text := _text(each))] if type(value) is list else None


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> int | None:
        return value if type(value) is int and least <= value <= most else None

    return check


def _number(least: float, most: float) -> Check:
    def check(value: Any) -> float | None:
        is_number = type(value) is float or type(value) is int
        return value if is_number and least <= value <= most else None

    return check


_seconds = _number(-_MOST_SECONDS, _MOST_SECONDS)


def _measure(value: Any) -> float | None:
    """What training computes may well be infinite or no number."""
    if type(value) is not float and type(value) is not int:
        return None
    if -_MOST_MEASURED <= value <= _MOST_MEASURED or value != value:  # noqa: PLR0124  (NaN)
        return value
    return math.inf if value > 0 else -math.inf


def _flag(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _are_seconds(values: Iterable[Any]) -> bool:
    """No loop, because most of a long run's numbers pass here; NaN is in no bounds."""
    try:
        return bool(sum(map(abs, values)) <= _MOST_SECONDS)
    except (TypeError, OverflowError):
        return False


def _list_of_seconds(value: Any) -> list[float] | None:
    return value if type(value) is list and _are_seconds(value) else None


def _numbers(value: Any) -> list[float] | None:
    """All of them in bounds, or none: they are told by their place."""
    try:
        return value if type(value) is list and sum(map(abs, value)) <= _MOST else None
    except (TypeError, OverflowError):
        return None


def _measures(value: Any) -> list[float] | None:
    if type(value) is not list or _numbers(value) is value:  # nearly always, and fast
        return value if type(value) is list else None
    checked = [number for each in value if (number := _measure(each)) is not None]
    if len(checked) < len(value):
        return None
    return value if checked == value else checked


def _phases(value: Any) -> dict[str, float] | None:
    """Seconds by phase; what another version calls by a name of its own is unexplained here."""
    if type(value) is not dict or not _are_seconds(value.values()):
        return None
    if _KNOWN_PHASES.issuperset(value):
        return value
    known = {name: seconds for name, seconds in value.items() if name in _KNOWN_PHASES}
    others = sum(value.values()) - sum(known.values())
    return {**known, UNEXPLAINED: known.get(UNEXPLAINED, 0.0) + others}


def _scores(value: Any) -> dict[str, float] | None:
    if type(value) is not dict:
        return None
    checked = {_text(name): _measure(score) for name, score in value.items()}
    return {name: score for name, score in checked.items() if name and score is not None}


def _slow_step(value: Any) -> Value | None:
    if type(value) is not dict:
        return None
    checked = _SLOW_STEP_CHECKS.of(value)
    return checked if "step" in checked and "seconds" in checked else None


def _devices(value: Any) -> list[Value] | None:
    """A device without a name is none; its figures are those that could be read."""
    if type(value) is not list:
        return None
    checked = [_DEVICE_CHECKS.of(each) for each in value if type(each) is dict]
    return [device for device in checked if "name" in device]


def _texts_by_name(value: Any) -> dict[str, str] | None:
    if type(value) is not dict:
        return None
    texts = {_text(name): _text(each) for name, each in value.items()}
    return {name: each for name, each in texts.items() if name and each is not None}


def _priced_hosts(value: Any) -> list[dict[str, Any]] | None:
    if type(value) is not list:
        return None
    return [_PRICED_HOST_CHECKS.of(each) for each in value if type(each) is dict]


_CHECKS: dict[Type, Check] = {
    "count": _whole(0, _MOST_COUNTED),
    "processes": _whole(0, _MOST_PROCESSES),
    "process": _whole(2, _MOST_PIDS),
    "code": _whole(-(1 << 31), 1 << 31),
    "time": _number(-_LAST_TIME, _LAST_TIME),
    "seconds": _seconds,
    "number": _number(-_MOST, _MOST),
    "above zero": _number(1e-24, _MOST),
    "measure": _measure,
    "flag": _flag,
    "text": _text,
    "texts": _texts,
    "numbers": _numbers,
    "measures": _measures,
    "step seconds": _list_of_seconds,
    "phases": _phases,
    "scores": _scores,
    "slow step": _slow_step,
    "devices": _devices,
    "texts by name": _texts_by_name,
    "priced hosts": _priced_hosts,
}
_SLOW_STEP_CHECKS = FieldChecks({"step": "count", "seconds": "seconds", "phases": "phases"})
_PRICED_HOST_CHECKS = FieldChecks({"name": "text", "price_per_hour": "number"})
_DEVICE_CHECKS = FieldChecks(
    {
        "name": "text",
        "utilisation": "number",
        "memory_bytes": "number",
        "memory_total_bytes": "number",
        "power_watts": "number",
    }
)
