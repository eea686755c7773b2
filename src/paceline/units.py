"""Bytes, durations and rates: one way to parse them and one way to print them."""

import re

from paceline.errors import UserError

_BYTE_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_BIT_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_LINK_PATTERN = re.compile(
    r"\s*([0-9.]+)\s*([kmgt]?)(bit|b|byte|bytes)(?:/s|ps)?\s*", re.IGNORECASE
)


def format_bytes(num_bytes: float) -> str:
    """Decimal units, as disks and networks are sold: 1,234,567 -> '1.2 MB'."""
    for size, name in _BYTE_STEPS:
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.1f} {name}"
    return f"{num_bytes:.0f} bytes"


def format_seconds(seconds: float) -> str:
    """The two units that matter: '2 h 05 min', '1 min 03 s', '0.42 s', '3.1 ms'."""
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def format_count(count: float) -> str:
    """Big numbers as people say them: 60,812,345 -> '60.8 M'."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(count) >= size:
            return f"{count / size if size != 1e4 else count / 1e3:.1f} {name}"
    return f"{count:,.0f}"


def parse_link_speed(text: str) -> float:
    """Bits per second from '10Gbit', '100 Mbit/s' or '12.5MB/s' (a capital B is bytes)."""
    match = _LINK_PATTERN.fullmatch(text)
    if match is None:
        raise UserError(f"'{text}' is not a link speed", "write it like 1Gbit, 100Mbit or 12MB/s")
    number, prefix, unit = match.groups()
    bits_per_unit = 8.0 if unit == "B" or unit.lower().startswith("byte") else 1.0
    return float(number) * _BIT_PREFIX[prefix.lower()] * bits_per_unit
