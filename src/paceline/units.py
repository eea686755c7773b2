"""Bytes, durations and rates: one way to parse them and one way to print them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from paceline.errors import UserError

_BYTE_UNITS = ((1e12, 1e12, "TB"), (1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"))
_COUNT_UNITS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""From which number on a unit is used, what it stands for, and its name."""
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BYTES_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?\s*", re.IGNORECASE)
_LINK_PATTERN = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kmgt]?)(bit|b|byte|bytes)(?:/s|ps)?\s*", re.IGNORECASE
)


def format_bytes(num_bytes: float) -> str:
    """Decimal units, as disks and networks are sold: 1,234,567 -> '1.2 MB'."""
    if not math.isfinite(num_bytes):
        return "?"
    return _in_largest_unit(num_bytes, _BYTE_UNITS) or count_of(round(num_bytes), "byte")


def _in_largest_unit(number: float, units: tuple[tuple[float, float, str], ...]) -> str | None:
    """The number is rounded as the next smaller unit would be: 999,960 is 1.0 M, not 1000.0 k."""
    for (least, size, name), (_, smaller, _) in pairwise((*units, (0.0, 10.0, "ones"))):
        if round(abs(number) / smaller, 1) * smaller >= least:
            return f"{number / size:.1f} {name}"
    return None


def format_seconds(seconds: float) -> str:
    """The two units that matter: '2 h 05 min', '1 min 03 s', '0.42 s', '3.1 ms', '12 µs'."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if round(seconds * 1e3, 1) < 100:
        return _short_time(seconds)
    if round(seconds, 2) < 10:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    return _long_time(round(seconds))


def _short_time(seconds: float) -> str:
    if round(seconds * 1e3, 1):
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs" if round(seconds * 1e6) else "0 s"


def _long_time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def format_count(count: float) -> str:
    """Big numbers as people say them: 60,812,345 -> '60.8 M'."""
    if not math.isfinite(count):
        return "?"
    return _in_largest_unit(count, _COUNT_UNITS) or f"{count:,.0f}"


def format_number(value: float) -> str:
    """Four digits that matter."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_bits(bits_per_second: float) -> str:
    """Speeds of links, as they are sold: 1e9 -> '1 Gbit/s'."""
    for size, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits_per_second >= size:
            return f"{bits_per_second / size:.3g} {name}"
    return f"{bits_per_second:.0f} bit/s"


def format_flops(flops: float) -> str:
    for size, name in ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")):
        if flops >= size:
            return f"{flops / size:.3g} {name}"
    return f"{flops / 1e6:.3g} MFLOP/s"


@dataclass(frozen=True)
class Scale:
    """How people write a score: its name, and what its values are of."""

    title: str
    whole: Literal["1, as %", "100"]
    """'1, as %': a share, shown in percent; '100': a number of 100, like BLEU."""


def format_score(name: str, value: float, scale: Scale | None) -> str:
    """'top-1 92.31 %', 'BLEU 38.6 of 100', and without a scale 'loss 0.2134'."""
    return f"{scale.title if scale else name} {format_score_value(value, scale)}"


def format_score_value(value: float, scale: Scale | None) -> str:
    if not math.isfinite(value):
        return "?"
    if scale is None:
        return f"{value:.4f}"
    if scale.whole == "100":
        return f"{value:.{1 if value >= 1 else 2}f} of 100"
    return f"{100 * value:.2f} %"


def format_scores(values: Mapping[str, float], scales: Mapping[str, Scale]) -> str:
    return ", ".join(format_score(name, value, scales.get(name)) for name, value in values.items())


def percent(share: float) -> str:
    """'0.4 %' and '12 %': one digit only where it says something."""
    if not math.isfinite(share):
        return "?"
    value = 100 * share
    if 0 < value < 0.05:
        return "under 0.1 %"
    return f"{value:.1f} %" if abs(value) < 9.95 else f"{value:.0f} %"


def plural(noun: str) -> str:
    """'target token' -> 'target tokens', 'batch' -> 'batches', 'entry' -> 'entries'."""
    if noun.endswith(("s", "x", "z", "ch", "sh")) and not noun.endswith("epoch"):
        return f"{noun}es"
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy", "uy")):
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def count_of(count: int, noun: str) -> str:
    """'1 save', '2 saves', '1,000 processes'."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def parse_bytes(text: str) -> float:
    """'243MB', '1.5 GB', '800': decimal units, as they are printed."""
    match = _BYTES_PATTERN.fullmatch(text)
    if match is None:
        raise UserError(f"'{text}' is no number of bytes", "write it like 243MB")
    return float(match.group(1)) * _PREFIX[match.group(2).lower()]


def parse_link_speed(text: str) -> float:
    """Bits per second from '10Gbit', '100 Mbit/s' or '12.5MB/s' (a capital B is bytes)."""
    match = _LINK_PATTERN.fullmatch(text)
    if match is None:
        raise UserError(f"'{text}' is not a link speed", "write it like 1Gbit, 100Mbit or 12MB/s")
    number, prefix, unit = match.groups()
    bits_per_unit = 8.0 if unit == "B" or unit.lower().startswith("byte") else 1.0
    return float(number) * _PREFIX[prefix.lower()] * bits_per_unit
