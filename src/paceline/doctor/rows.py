"""What the doctor says: rows of a table, one for each thing checked, and how they are printed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from paceline.terminal import printable

State = Literal["ok", "warn", "fail"]
Facts = Mapping[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Row:
    where: str
    """A host, a pair of hosts, or all of them."""
    what: str
    state: State
    found: str
    remedy: str = ""


def all_of(names: Iterable[str]) -> str:
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"all {len(listed)} hosts"


def usual(values: Iterable[Value], tie_breaker: Value | None = None) -> Value | None:
    """What most have; where no value wins, the one that this machine has."""
    counted = Counter(values).most_common()
    if not counted:
        return None
    best = [value for value, count in counted if count == counted[0][1]]
    return tie_breaker if tie_breaker in best else best[0]


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row where several hosts have the very same trouble."""
    together: dict[tuple[str, State, str, str], list[str]] = {}
    for row in rows:
        together.setdefault((row.what, row.state, row.found, row.remedy), []).append(row.where)
    return [
        Row(", ".join(where), what, state, found, remedy)
        for (what, state, found, remedy), where in together.items()
    ]


def render(rows: Iterable[Row]) -> str:
    """A table without lines; remedies stand below what they are for."""
    listed = list(rows)
    where = max((len(row.where) for row in listed), default=0)
    what = max((len(row.what) for row in listed), default=0)
    lines = []
    for row in listed:
        lines.append(f"{row.state:<4}  {row.where:<{where}}  {row.what:<{what}}  {row.found}")
        if row.remedy:
            lines.append(f"{'':<{where + what + 10}}-> {row.remedy}")
    return printable("\n".join(lines))
