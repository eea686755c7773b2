"""Small turns of phrase that several answers share."""

import re
from pathlib import Path

HOW_PHASES = (
    "the time that each process spent in the phase, averaged over all processes, as a share of the "
    "loop (input, compute, network, optimizer, checkpoint)"
)
GIVE_LINK = "the speed of the link between the hosts: give it, e.g. `--link 1Gbit`"


def signed(value: float, digits: str = ".4f") -> str:
    return f"{value:+{digits}}"


def format_money(amount: float) -> str:
    """Cents, or two digits that matter of less than ten of them."""
    return f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"


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
