"""What the doctor says: rows of a table, one for each thing checked, and how they are printed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from paceline.terminal import printable, printable_line

if TYPE_CHECKING:
    from rich.console import Console

State = Literal["ok", "warn", "fail"]
Facts = Mapping[str, Any]
Value = TypeVar("Value")

_STATE_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


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


def print_rows(rows: Iterable[Row], console: "Console") -> None:
    """The same table on a terminal: coloured, and with columns that fit.

    Remedies are not in columns: they hold commands, and what is wrapped cannot be copied.
    """
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    listed = list(rows)
    limit = max(console.width // 4, 4)
    widths = [
        min(max((cell_len(printable_line(text)) for text in column), default=0), limit)
        for column in ([row.where for row in listed], [row.what for row in listed])
    ]
    for row in listed:
        table = Table.grid(padding=(0, 2, 0, 0))
        for width in (4, *widths, None):
            table.add_column(width=width, overflow="fold")
        state = Text(row.state, _STATE_COLOURS[row.state])
        cells = (row.where, row.what, row.found)
        table.add_row(state, *(Text(printable_line(cell)) for cell in cells))
        console.print(table)
        if row.remedy:
            remedy = Text(f"      -> {printable(row.remedy)}", "cyan")
            console.print(remedy, soft_wrap=True)
