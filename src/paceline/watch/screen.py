"""A run on one screen of a terminal: a pure function from the picture of a run to lines."""

import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.record.schema import PHASES
from paceline.units import format_bytes, format_count, format_seconds, plural
from paceline.watch.live import RECENT_SECONDS, LiveRun, Rank

_COLOURS = {
    "start-up": 90,
    "input": 33,
    "compute": 32,
    "network": 31,
    "optimizer": 36,
    "evaluate": 34,
    "checkpoint": 35,
    "restart": 91,
    "shut-down": 90,
    "unexplained": 37,
}
_LETTERS = {
    "start-up": "s",
    "input": "i",
    "compute": "c",
    "network": "n",
    "optimizer": "o",
    "evaluate": "e",
    "checkpoint": "k",
    "restart": "r",
    "shut-down": "d",
    "unexplained": "?",
}
_COLOURING = re.compile(r"(\x1b\[[0-9;]*m)")
_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_RANKS = 16
_MOST_WARNINGS = 5


@dataclass(frozen=True)
class Paper:
    """What the lines are drawn on."""

    width: int = 100
    colour: bool = False
    plain: bool = False
    """Only ASCII."""

    def paint(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def strong(self, text: str) -> str:
        return self.paint(text, 1)

    def faint(self, text: str) -> str:
        return self.paint(text, 2)


def paper_of_terminal() -> Paper:
    width = shutil.get_terminal_size((100, 40)).columns
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return Paper(max(width, 40), sys.stdout.isatty(), plain=not encoding.startswith("utf"))


def draw(live: LiveRun, paper: Paper) -> list[str]:
    """The whole screen, most important first, because terminals cut at the bottom."""
    lines = [
        *_head(live, paper),
        "",
        *_curves(live, paper),
        *_hosts(live, paper),
        *_ranks(live, paper),
        *_warnings(live, paper),
    ]
    return [fit(line, paper.width) for line in lines]


def fit(line: str, width: int) -> str:
    """Cut what does not fit; what only colours takes no room and stays, so colours end."""
    room, kept = width, []
    for piece in _COLOURING.split(line):
        if piece.startswith("\x1b"):
            kept.append(piece)
        else:
            kept.append(piece[:room])
            room -= len(kept[-1])
    return "".join(kept)


def _head(live: LiveRun, paper: Paper) -> list[str]:
    state, total = live.state(), live.total_steps
    colour = {"running": 32, "starting": 33, "finished": 32, "not started": 33}.get(state, 31)
    workload = str(live.settings.get("workload", ""))
    title = f"{paper.strong(str(live.run.path))}  {workload}  {paper.paint(state, colour)}"
    title += f", attempt {live.attempt}" if live.attempt > 1 else ""
    if not live.ranks:
        return [title, _nothing_yet(live)]
    done = min(live.step / total, 1.0) if total else 0.0
    left = live.seconds_left()
    told = f" step {live.step:,} of {total:,}  {100 * done:.1f} %"
    told += f"  {format_seconds(left)} left" if left is not None else ""
    bar = bar_of(done, max(10, min(40, paper.width - len(told) - 1)), paper)
    return [title, bar + told]


def _nothing_yet(live: LiveRun) -> str:
    if live.state() == "starting":
        return "processes are starting; nothing is recorded yet"
    return "nothing is recorded here yet"


def _curves(live: LiveRun, paper: Paper) -> list[str]:
    steps = live.steps()
    if not steps:
        return []
    unit = plural(str(live.facts.get("unit", "unit")))
    last = steps[-1]
    room = max(10, min(50, paper.width - 45))
    losses = [record["loss"] for record in steps if record["loss"] is not None]
    speeds = [record["units_per_second"] for record in steps]
    rates = [record["rate"] for record in steps]
    lines = [
        _curve("loss", f"{losses[-1]:.4f}" if losses else "not finite", losses, room, paper),
        _curve("rate", f"{last['rate']:.3g}", rates, room, paper),
        _curve(f"{unit}/s", f"{speeds[-1]:,.0f}", speeds, room, paper),
    ]
    return [*lines, *_score_curves(live, room, paper)]


def _score_curves(live: LiveRun, room: int, paper: Paper) -> list[str]:
    lines = []
    for split in ("validation", "train"):
        scores = live.scores(split)
        for name in scores[-1]["scores"] if scores else ():
            values = [r["scores"][name] for r in scores if r["scores"].get(name) is not None]
            if values:
                best = min(values) if name == "loss" else max(values)
                shown = f"{values[-1]:.4g} (best {best:.4g})"
                lines.append(_curve(f"{split} {name}", shown, values, room, paper))
    return lines


def _curve(name: str, value: str, values: Sequence[float], room: int, paper: Paper) -> str:
    return f"{name:<18} {value:<24} {paper.paint(spark(values, room, paper), 36)}"


def spark(values: Sequence[float], width: int, paper: Paper) -> str:
    """Means over `width` stretches between the lowest and the highest."""
    if len(values) < 2:
        return ""
    width = min(width, len(values))
    cuts = [number * len(values) // width for number in range(width + 1)]
    means = [sum(values[first:last]) / (last - first) for first, last in pairwise(cuts)]
    low, high = min(means), max(means)
    marks = "_.-=^" if paper.plain else _SPARKS
    is_flat = high - low <= 1e-6 * max(abs(high), abs(low))
    scale = 0.0 if is_flat else (len(marks) - 1) / (high - low)
    return "".join(marks[round((mean - low) * scale)] for mean in means)


def bar_of(share: float, width: int, paper: Paper) -> str:
    full, empty = ("#", ".") if paper.plain else ("█", "░")
    num_full = round(min(max(share, 0.0), 1.0) * width)
    return full * num_full + empty * (width - num_full)


def _hosts(live: LiveRun, paper: Paper) -> list[str]:
    if not live.hosts:
        return []
    heading = f"{'host':<14} {'processor':<18} {'memory':<20} {'interface':<9} out, in"
    lines = ["", paper.faint(heading)]
    for name, probe in sorted(live.hosts.items()):
        seconds = max(float(probe["seconds"]), 1e-9)
        share = float(probe["cpu_share"])
        memory = (
            f"{format_bytes(probe['memory_bytes'])} of {format_bytes(probe['memory_total_bytes'])}"
        )
        traffic = (
            f"{format_bytes(probe['sent_bytes'] / seconds)}/s, "
            f"{format_bytes(probe['received_bytes'] / seconds)}/s{_of_link(probe, seconds)}"
        )
        lines.append(
            f"{name:<14} {bar_of(share, 10, paper)} {100 * share:>4.0f} %  {memory:<20} "
            f"{probe['interface']!s:<9} {traffic}"
        )
        lines += [_device(device, paper) for device in probe.get("devices", [])]
    return lines


def _of_link(probe: dict[str, object], seconds: float) -> str:
    link = probe.get("link_bits_per_second")
    if not isinstance(link, int | float) or not link:
        return ""
    most = max(float(str(probe["sent_bytes"])), float(str(probe["received_bytes"])))
    return f" ({100 * 8 * most / seconds / link:.0f} % of the link)"


def _device(device: dict[str, object], paper: Paper) -> str:
    share, watts = device.get("utilisation"), device.get("power_watts")
    shown = (
        f"{bar_of(float(str(share)), 10, paper)} {100 * float(str(share)):>4.0f} %"
        if (share is not None)
        else "?"
    )
    memory = (
        f"{format_bytes(float(str(device['memory_bytes'])))} of "
        f"{format_bytes(float(str(device['memory_total_bytes'])))}"
    )
    power = f"  {float(str(watts)):.0f} W" if watts is not None else ""
    return f"  {str(device['name'])[:12]:<12} {shown:<18} {memory:<20}{power}"


def _ranks(live: LiveRun, paper: Paper) -> list[str]:
    ranks = [rank for _, rank in sorted(live.ranks.items()) if rank.recent]
    if not ranks:
        return []
    since = live.last_time - RECENT_SECONDS
    used = [name for name in PHASES if any(rank.phases(since).get(name) for rank in ranks)]
    legend = "  ".join(
        paper.paint(_block(name, paper) + " " + name, _COLOURS[name]) for name in used
    )
    lines = ["", f"where the last minute went  {legend}"]
    lines += [_rank(rank, since, paper) for rank in ranks[:_MOST_RANKS]]
    if len(ranks) > _MOST_RANKS:
        lines.append(f"and {format_count(len(ranks) - _MOST_RANKS)} more processes")
    slow = live.straggler()
    if slow is not None:
        text = (
            f"the others wait for rank {slow.rank}, which spends more in {slow.phase}: "
            f"{100 * slow.waited_share:.0f} % of their time"
        )
        lines.append(paper.paint(text, 33))
    return lines


def _block(phase: str, paper: Paper) -> str:
    return "█" if paper.colour and not paper.plain else _LETTERS[phase]


def _rank(rank: Rank, since: float, paper: Paper) -> str:
    phases = rank.phases(since)
    whole = sum(phases.values()) or 1.0
    width = max(10, min(60, paper.width - 55))
    bar, drawn, passed = "", 0, 0.0
    for name in PHASES:
        passed += phases.get(name, 0.0)
        upto = round(width * min(passed / whole, 1.0))
        if upto > drawn:
            bar += paper.paint(_block(name, paper) * (upto - drawn), _COLOURS[name])
            drawn = upto
    biggest = sorted(phases.items(), key=lambda entry: -entry[1])[:2]
    told = ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in biggest)
    return f"rank {rank.number:<3} {rank.host[:10]:<10} {bar}{' ' * (width - drawn)} {told}"


def _warnings(live: LiveRun, paper: Paper) -> list[str]:
    if not live.warnings:
        return []
    lines = ["", paper.paint("last warnings", 33)]
    for warning in list(live.warnings)[-_MOST_WARNINGS:]:
        clock = time.strftime("%H:%M:%S", time.localtime(warning["time"]))
        text = " ".join(str(warning["text"]).split())
        lines.append(f"{clock}  rank {warning['rank']}  {text}")
    return lines


def watch(live: LiveRun, write: Callable[[str], None], seconds: float) -> None:
    """Draw again and again on the terminal's second screen until the run is over."""
    write("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            live.update()
            height = shutil.get_terminal_size((100, 40)).lines
            lines = draw(live, paper_of_terminal())[: height - 1]
            write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
            if not live.is_going_on():
                return
            time.sleep(seconds)
    finally:
        write("\x1b[?25h\x1b[?1049l")
