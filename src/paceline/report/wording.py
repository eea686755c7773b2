"""Small turns of phrase that several answers share."""

import math
import re
from pathlib import Path

from paceline.units import format_bytes


def percent(share: float) -> str:
    """'0.4 %' and '12 %': one digit only where it says something."""
    if not math.isfinite(share):
        return "?"
    value = 100 * share
    if 0 < value < 0.05:
        return "under 0.1 %"
    return f"{value:.1f} %" if abs(value) < 9.95 else f"{value:.0f} %"


def signed(value: float, digits: str = ".4f") -> str:
    return f"{value:+{digits}}"


def number(value: float) -> str:
    """Four digits that matter."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def rate_of_bytes(bytes_per_second: float) -> str:
    return f"{format_bytes(bytes_per_second)}/s"


def bits(bits_per_second: float) -> str:
    for size, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits_per_second >= size:
            return f"{bits_per_second / size:.3g} {name}"
    return f"{bits_per_second:.0f} bit/s"


def times_as_fast(before: float, after: float) -> str:
    return f"{before / after:.2f} times as fast" if after > 0 else "far faster"


def listed(parts: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    if not parts:
        return "nothing"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def again(run: Path, setting: str, suffix: str = "-2") -> str:
    """The command that trains the same recipe with one thing changed, beside this run."""
    return f"paceline train {run}/recipe.yaml {setting} --run {run}{suffix}"


def go_on(run: Path, setting: str) -> str:
    return f"paceline train {run}/recipe.yaml {setting} --run {run}"


_COMMAND = re.compile(r"`([^`]+)`|(paceline [^;`]+)")


def commands_marked(remedy: str) -> list[tuple[str, bool]]:
    """The remedy in pieces, each with whether it is a command that can be copied."""
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in _COMMAND.finditer(remedy):
        pieces.append((remedy[end : match.start()], False))
        pieces.append((match.group(1) or match.group(2), True))
        end = match.end()
    pieces.append((remedy[end:], False))
    return [piece for piece in pieces if piece[0]]
