"""A run on one screen of a terminal, drawn by `rich` from the picture of the run.

Texts come from events and file names, which anybody may have written: they pass `printable`, and
never are markup.
"""

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline.record.palette import PHASE_COLOURS
from paceline.record.schema import PHASES
from paceline.task_finder import scales_of
from paceline.terminal import averaged, bar, printable_line, sparkline
from paceline.units import format_bytes, format_score_value, format_seconds, plural
from paceline.watch.live import RECENT_SECONDS, LiveRun, Record, ratio

_MOST_ROWS = 16
_MOST_WARNINGS = 5
_NARROW = 80
_LEAST_SPARK = 5
_CHECK_SIZE_SECONDS = 0.2
_STATE_COLOURS = {
    "running": "green",
    "finished": "green",
    "starting": "yellow",
    "not started": "yellow",
}


@dataclass(frozen=True)
class Look:
    """What there is to draw on."""

    width: int = 100
    height: int | None = None
    """Rows that can be seen at once; None where all that is printed can be read."""
    colour: bool = False
    ascii_only: bool = False

    @property
    def is_narrow(self) -> bool:
        return self.width < _NARROW


def look_of(console: Console, height: int | None = None) -> Look:
    colour = console.color_system is not None and not console.no_color
    return Look(console.width, height, colour, console.options.ascii_only)


def draw(live: LiveRun, look: Look) -> RenderableType:
    """The whole screen, most important first, because terminals cut at the bottom."""
    head, curves, slow = _head(live, look), _curves(live, look), _straggler(live)
    hosts, ranks, warnings = _host_rows(live, look), _rank_rows(live, look), _warning_rows(live)
    wanted = [
        min(len(hosts), _MOST_ROWS),
        min(len(ranks), _MOST_ROWS),
        min(len(warnings), _MOST_WARNINGS),
    ]
    if look.height is not None:
        around = 2 * sum(map(bool, wanted)) + (slow.cell_len // look.width + 1 if slow else 0)
        around += bool(ranks) and look.is_narrow  # the legend takes two lines
        wanted = share_rows(wanted, look.height - len(head) - 1 - len(curves) - around)
    table: list[RenderableType] = ["", _table(curves, look)] if curves else []
    return Group(
        *head,
        *table,
        *_hosts(hosts, wanted[0], look),
        *_ranks(ranks, wanted[1], live, look),
        *([slow] if slow else []),
        *_warnings(warnings, wanted[2], look),
    )


def share_rows(wanted: Sequence[int], room: int) -> list[int]:
    """The same number of rows for everybody; what one does not need goes to the others.

    Where rows are left out, one more row says so.
    """
    given = _dealt_out(wanted, room)
    num_cut = sum(own < want for own, want in zip(given, wanted, strict=True))
    return [max(own, 1) for own in (_dealt_out(wanted, room - num_cut) if num_cut else given)]


def _dealt_out(wanted: Sequence[int], room: int) -> list[int]:
    given = [0] * len(wanted)
    for _ in range(max(room, 0)):
        hungry = [n for n, want in enumerate(wanted) if given[n] < want]
        if not hungry:
            break
        given[min(hungry, key=lambda n: given[n])] += 1
    return given


def _line(text: Text, look: Look) -> Text:
    """Cut rather than wrapped: what is drawn again and again must not jump."""
    text.no_wrap, text.overflow = True, "crop" if look.ascii_only else "ellipsis"
    return text


def _table(rows: Sequence[Sequence[Text]], look: Look, shrinks: int = -1) -> Table:
    """Columns as wide as needed; only the one that `shrinks` gives way where room is short."""
    table = Table.grid(padding=(0, 2 if look.width > 60 else 1, 0, 0))
    num_columns = max((len(row) for row in rows), default=0)
    for number in range(num_columns):
        keeps = number != shrinks % num_columns
        table.add_column(no_wrap=keeps, overflow="crop" if look.ascii_only else "ellipsis")
    for row in rows:
        table.add_row(*(_line(cell, look) for cell in row))
    return table


def _head(live: LiveRun, look: Look) -> list[RenderableType]:
    state, total = live.state(), live.total_steps
    attempt = f", attempt {live.attempt}" if live.attempt > 1 else ""
    title = [
        Text(printable_line(str(live.run.path)), "bold"),
        Text(printable_line(str(live.settings.get("workload", "")))),
        Text(printable_line(state), _STATE_COLOURS.get(state, "red")).append(attempt, "default"),
    ]
    first = _table([title], look, shrinks=0)
    if not live.ranks:
        return [first, _line(Text(_nothing_yet(live)), look)]
    done = min(live.step / total, 1.0) if total else 0.0
    left = live.seconds_left()
    told = f" step {live.step:,} of {total:,}  {100 * done:.1f} %"
    told += f"  {format_seconds(left)} left" if left else ""
    room = max(0, min(40, look.width - len(told)))
    return [first, _line(Text(bar(done, room, look.ascii_only)).append(told), look)]


def _nothing_yet(live: LiveRun) -> str:
    if live.state() == "starting":
        return "processes are starting; nothing is recorded yet"
    return "nothing is recorded here yet"


def _curves(live: LiveRun, look: Look) -> list[list[Text]]:
    """Name, value and curve of what is measured at each step, and of the scores."""
    steps = live.steps()
    if not steps:
        return []
    unit = plural(printable_line(str(live.facts.get("unit", "unit"))))
    losses = [record["loss"] for record in steps if record["loss"] is not None]
    rates = [record["rate"] for record in steps if record["rate"] is not None]
    speeds = [record["units_per_second"] for record in steps]
    found = [
        ("loss", f"{losses[-1]:.4f}" if losses else "not finite", losses),
        ("rate", f"{rates[-1]:.3g}" if rates else "?", rates),
        (f"{unit}/s", f"{speeds[-1]:,.0f}", speeds),
        *_score_curves(live, look),
    ]
    taken = max(cell_len(name) for name, _, _ in found) + max(len(shown) for _, shown, _ in found)
    room = min(50, look.width - taken - 4)
    return [
        [Text(name), Text(shown), Text(_spark(values, room, look), "cyan")]
        for name, shown, values in found
    ]


def _score_curves(live: LiveRun, look: Look) -> list[tuple[str, str, list[float]]]:
    found, scales = [], scales_of(live.settings.get("workload"))
    for split in ("validation", "train"):
        scores = live.scores(split)
        for name in scores[-1]["scores"] if scores else ():
            values = [r["scores"][name] for r in scores if r["scores"].get(name) is not None]
            if values:
                scale = scales.get(name)
                best = format_score_value(min(values) if name == "loss" else max(values), scale)
                shown = format_score_value(values[-1], scale)
                shown += "" if look.is_narrow else f" (best {best})"
                title = scale.title if scale else name
                found.append((printable_line(f"{split} {title}"), shown, values))
    return found


def _spark(values: list[float], room: int, look: Look) -> str:
    if len(values) < 2 or room < _LEAST_SPARK:
        return ""
    return sparkline(averaged(values, room), room, ascii_only=look.ascii_only)


def _host_rows(live: LiveRun, look: Look) -> list[list[Text]]:
    """With as many words about the link as there is room for: half a word says nothing."""
    wordings = ["{} of the link", "{}", ""] if not look.is_narrow else [""]
    variants = [_rows_with(live, look, wording) for wording in wordings]
    return next((rows for rows in variants if _fit(rows, look)), variants[-1])


def _fit(rows: list[list[Text]], look: Look) -> bool:
    widths: list[int] = [max(c.cell_len for c in column) for column in zip(*rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1) <= look.width


def _rows_with(live: LiveRun, look: Look, link_wording: str) -> list[list[Text]]:
    rows = []
    for name, probe in sorted(live.hosts.items()):
        sent = ratio(probe["sent_bytes"], probe["seconds"])
        received = ratio(probe["received_bytes"], probe["seconds"])
        link = _of_link(probe, link_wording)
        cells = [
            Text(printable_line(name)),
            _busy(probe["cpu_share"], look),
            _memory(probe, look),
            *([] if look.is_narrow else [Text(printable_line(probe["interface"]))]),
            Text(f"{_bytes(sent)}/s, {_bytes(received)}/s{link}"),
        ]
        rows.append(cells)
        rows += [_device(device, look) for device in probe["devices"]]
    return rows


def _device(device: Record, look: Look) -> list[Text]:
    watts = device["power_watts"]
    return [
        Text(f"  {printable_line(device['name'])}"),
        _busy(device["utilisation"], look),
        _memory(device, look),
        *([] if look.is_narrow else [Text("")]),
        Text(f"{watts:.0f} W" if watts is not None else ""),
    ]


def _busy(share: float | None, look: Look) -> Text:
    if share is None:
        return Text("?")
    shown = f"{100 * share:.0f} %"
    return Text(shown if look.is_narrow else f"{bar(share, 10, look.ascii_only)} {shown:>5}")


def _memory(part: Record, look: Look) -> Text:
    used, total = part["memory_bytes"], part["memory_total_bytes"]
    if not look.is_narrow:
        return Text(f"{_bytes(used)} of {_bytes(total)}")
    share = ratio(used, total)
    return Text("?" if share is None else f"{100 * share:.0f} %")


def _bytes(number: float | None) -> str:
    return "?" if number is None else format_bytes(number)


def _of_link(probe: Record, wording: str) -> str:
    """`wording` has a place for the share; without one nothing is said."""
    link, known = probe["link_bits_per_second"], [probe["sent_bytes"], probe["received_bytes"]]
    rate = ratio(max((one for one in known if one is not None), default=None), probe["seconds"])
    share = ratio(rate, link)
    if share is None or not wording:
        return ""
    return f" ({wording.format(f'{100 * 8 * share:.0f} %')})"


def _hosts(rows: list[list[Text]], most: int, look: Look) -> list[RenderableType]:
    if not rows:
        return []
    names = ["host", "processor", "memory", "interface", "out, in"]
    if look.is_narrow:
        names = ["host", "cpu", "mem", "out, in"]
    heading = [Text(name, "dim") for name in names]
    return ["", _table([heading, *rows[:most]], look), *_more(len(rows) - most, "hosts or devices")]


def _more(count: int, of_what: str) -> list[RenderableType]:
    return [Text(f"and {count:,} more {of_what}", "dim")] if count > 0 else []


def _rank_rows(live: LiveRun, look: Look) -> list[list[Text]]:
    ranks = [rank for _, rank in sorted(live.ranks.items()) if rank.recent]
    since = live.last_time - RECENT_SECONDS
    told = [_biggest(rank.phases(since), 1 if look.width < 60 else 2) for rank in ranks]
    names = [f"rank {rank.number}" for rank in ranks]
    hosts = [printable_line(rank.host) if look.width >= 60 else "" for rank in ranks]
    taken = sum(max(map(cell_len, column), default=0) for column in (names, hosts, told))
    width = max(4, min(60, look.width - taken - 8))
    return [
        [Text(name), Text(host), _phase_bar(rank.phases(since), width, look), Text(text)]
        for name, host, rank, text in zip(names, hosts, ranks, told, strict=True)
    ]


def _biggest(phases: dict[str, float], count: int) -> str:
    whole = sum(phases.values()) or 1.0
    biggest = sorted(phases.items(), key=lambda entry: -entry[1])[:count]
    return ", ".join(f"{printable_line(n)} {100 * s / whole:.0f} %" for n, s in biggest)


def _phase_bar(phases: dict[str, float], width: int, look: Look) -> Text:
    whole = sum(phases.values()) or 1.0
    drawn, passed, line = 0, 0.0, Text()
    for name in PHASES:
        passed += phases.get(name, 0.0)
        upto = round(width * min(passed / whole, 1.0))
        if upto > drawn:
            line.append(_block(name, look) * (upto - drawn), PHASE_COLOURS[name].terminal)
            drawn = upto
    return line.append(" " * (width - drawn))


def _block(phase: str, look: Look) -> str:
    return "█" if look.colour and not look.ascii_only else PHASE_COLOURS[phase].letter


def _ranks(rows: list[list[Text]], most: int, live: LiveRun, look: Look) -> list[RenderableType]:
    if not rows:
        return []
    shown = [rank.phases(live.last_time - RECENT_SECONDS) for rank in live.ranks.values()]
    legend = Text("where the last minute went" if not look.is_narrow else "last minute")
    for name in PHASES:
        if any(phases.get(name) for phases in shown):
            legend.append(f"  {_block(name, look)} {name}", PHASE_COLOURS[name].terminal)
    more = _more(len(rows) - most, "processes")
    return ["", legend, _table(rows[:most], look, shrinks=1), *more]


def _straggler(live: LiveRun) -> Text | None:
    slow = live.straggler()
    if slow is None:
        return None
    return Text(
        f"the others wait for rank {slow.rank}, which spends more in "
        f"{printable_line(slow.phase)}: {100 * slow.share:.0f} % of their time",
        "yellow",
    )


def _warning_rows(live: LiveRun) -> list[Text]:
    return [
        Text(f"{_clock(one['time'])}  rank {one['rank']}  {printable_line(one['text'])}")
        for one in live.warnings
    ]


def _clock(seconds: float) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "??:??:??"  # no time that a calendar has


def _warnings(rows: list[Text], most: int, look: Look) -> list[RenderableType]:
    if not rows:
        return []
    shown = rows[-most:]
    if look.height is not None:
        shown = [_line(row, look) for row in shown]
    return ["", Text("last warnings", "yellow"), *shown]


def show(live: LiveRun, console: Console) -> None:
    """One picture, without the blanks that tables end their lines with."""
    with console.capture() as captured:
        console.print(draw(live, look_of(console)))
    lines = captured.get().splitlines()
    console.file.write("".join(f"{line.rstrip(' ')}\n" for line in lines))
    console.file.flush()


def watch(live: LiveRun, console: Console, seconds: float) -> None:
    """Draw again and again on the terminal's second screen until the run is over."""
    before = signal.signal(signal.SIGTERM, _leave)  # so that the terminal gets its screen back
    try:
        with Live(console=console, screen=True, auto_refresh=False) as screen:
            while live.is_going_on():
                _draw_until(time.monotonic() + seconds, live, screen)
                live.update()
            live.update()  # what was written just before it ended
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _draw_until(until: float, live: LiveRun, screen: Live) -> None:
    """Draw, and draw anew when the window changes its size."""
    drawn_for = None
    while True:
        size = screen.console.size  # asked before drawing: it may change meanwhile
        if size != drawn_for:
            drawn_for = size
            screen.update(draw(live, look_of(screen.console, size.height)), refresh=True)
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, _CHECK_SIZE_SECONDS))
