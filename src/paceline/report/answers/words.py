"""Small turns of phrase that several answers share."""

import re

from paceline.report.facts.facts import Facts
from paceline.task_finder import scales_of
from paceline.units import Scale, format_score_value

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


_HARDLY = 1.005


def times_as_fast(before: float, after: float) -> str:
    if after <= 0:
        return "far faster"
    return "no faster" if before / after < _HARDLY else f"{before / after:.2f} times as fast"


def score_value(facts: Facts, name: str, value: float) -> str:
    """With its scale, where the task says what its values are of."""
    scale = _scale(facts, name)
    return f"{value:.4g}" if scale is None else format_score_value(value, scale)


def score_change(facts: Facts, name: str, value: float, is_signed: bool = False) -> str:
    """A difference of two scores: in points of a hundred, where the score is of a hundred."""
    scale, sign = _scale(facts, name), "+" if is_signed else ""
    if scale is None:
        return f"{value:{sign}.4f}"
    return f"{100 * value if scale.whole == '1, as %' else value:{sign}.2f} points"


def _scale(facts: Facts, name: str) -> Scale | None:
    return scales_of(facts.settings.get("workload")).get(name) if facts.is_own else None


def listed(parts: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    if not parts:
        return "nothing"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


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
