"""Writing a run as a trace in the Trace Event Format, which Perfetto and Chrome read."""

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.files import write_whole
from paceline.record.directory import require_run
from paceline.record.events import Event, read_events, read_probes
from paceline.record.schema import RunDirectory
from paceline.record.story import cutoffs
from paceline.report.trace.clocks import NO_OFFSET, Offset, estimate_offsets
from paceline.report.trace.counters import Counter, counters_of
from paceline.report.trace.layout import Mark, Slice, marks_of, slices_of_rank
from paceline.report.trace.lines import Keys, RankLines, choose_lines, read_lines
from paceline.terminal import printable

MOST_EVENTS = 150_000
"""About 110 bytes each; viewers in browsers stay quick up to a few hundred thousand."""
_EVENTS_BESIDE_STEPS = 14
"""Of one line: phases, collectives, the phases of its slowest step, what was not drawn before."""
_MOST_COUNTERS = 60_000
_BYTES_OF_PROBES = 1 << 20
_TRACKS = {
    "steps": (1, "steps (each as it was)"),
    "phases": (2, "phases (sums over a log line)"),
    "collectives": (3, "collectives (waiting, sums over a log line)"),
    "evaluations": (4, "evaluations"),
    "saves": (5, "checkpoints being written"),
    "marks": (6, "scores, warnings, ends"),
}
_HOST_PID = 1_000_000
_LAUNCHER_PID = 2_000_000


@dataclass(frozen=True)
class Written:
    num_events: int
    num_bytes: int
    share_drawn: float
    """Of the log lines."""
    offsets: dict[str, Offset]


class _Clock:
    """Moments of a host's clock as whole microseconds since the trace's beginning: with fractions,
    viewers find that a slice ends after its neighbour has begun."""

    def __init__(self, offset: Offset, zero: float) -> None:
        self._offset, self._zero = offset, zero

    def at(self, attempt: int, time: float) -> int:
        return round((time - self._offset.at(attempt, time) - self._zero) * 1e6)


def write_trace(path: Path, file: Path) -> Written:
    run = require_run(path)
    ranks = read_lines(run)
    if not any(len(rank.keys) for rank in ranks):
        raise UserError(f"{path} has no steps yet, so there is nothing to draw", "try again later")
    offsets = estimate_offsets(ranks)
    chosen = choose_lines(ranks, _lines_within(ranks))
    probes = _probes_of_hosts(run)
    launcher = read_events(run.launcher_events)
    zero = _beginning(ranks, offsets, probes, launcher)
    events: list[str] = []
    for rank in ranks:
        clock = _Clock(offsets.get(rank.host, NO_OFFSET), zero)
        events += _rank_events(rank, chosen, clock)
    events += _host_events(probes, offsets, zero)
    first = offsets.get(ranks[0].host, NO_OFFSET)
    events += _launcher_events(launcher, _Clock(first, zero))
    head = _about(path, ranks, chosen, offsets, zero)
    num_bytes = _write(file, events, head)
    return Written(len(events), num_bytes, head["share_of_log_lines_drawn"], offsets)


def _lines_within(ranks: list[RankLines]) -> int:
    """How many lines of every rank may be drawn."""
    samples = [event for rank in ranks for event in rank.events(range(min(len(rank.keys), 1)))]
    counts = [len(event.get("step_seconds", ())) for event in samples]
    per_line = max(counts, default=1) + _EVENTS_BESIDE_STEPS
    return max(MOST_EVENTS // (len(ranks) * per_line), 2)


def _beginning(
    ranks: list[RankLines],
    offsets: dict[str, Offset],
    probes: dict[str, list[Event]],
    launcher: list[Event],
) -> float:
    """The first moment of all: viewers drop what is before zero."""
    begins: list[float] = [
        event["time"]
        - max(event["seconds"], 0.0)
        - offsets[rank.host].at(event["attempt"], event["time"])
        for rank in ranks
        for event in rank.others
        if event["kind"] == "begin"
    ]
    counted: list[float] = [
        one["time"]
        - max(one["seconds"], 0.0)
        - offsets.get(host, NO_OFFSET).at(one["attempt"], one["time"])
        for host, own in probes.items()
        for one in own
    ]
    firsts = [float(rank.times.min()) for rank in ranks if len(rank.times)]
    launched: list[float] = [event["time"] for event in launcher]
    return min([*begins, *firsts, *counted, *launched])


def _rank_events(rank: RankLines, chosen: Keys, clock: _Clock) -> Iterator[str]:
    where = f" on {rank.host}" if rank.host else ""
    yield from _process(rank.rank, f"rank {rank.rank}{where}", rank.rank)
    for number, name in _TRACKS.values():
        yield _thread(rank.rank, number, name)
    limits = cutoffs([*rank.others, *({"attempt": n, "kind": "mark"} for n in rank.attempts)])
    for piece in slices_of_rank(rank, chosen, limits):
        yield _slice(rank.rank, piece, clock)
    for mark in marks_of(rank.others):
        yield _mark(rank.rank, mark, clock)


def _probes_of_hosts(run: RunDirectory) -> dict[str, list[Event]]:
    found = {}
    for path in sorted(run.events.glob("host-*.jsonl")):
        probes = read_probes(path, _BYTES_OF_PROBES)
        told = [str(probe["host"]) for probe in probes if "host" in probe]
        found[told[0] if told else path.stem.removeprefix("host-")] = probes
    return found


def _host_events(
    probes: dict[str, list[Event]], offsets: dict[str, Offset], zero: float
) -> Iterator[str]:
    for number, (host, own) in enumerate(probes.items()):
        clock = _Clock(offsets.get(host, NO_OFFSET), zero)
        yield from _process(_HOST_PID + number, f"host {host}", _HOST_PID + number)
        for counter in counters_of(own, _MOST_COUNTERS // len(probes)):
            yield _counter(_HOST_PID + number, counter, clock)


def _launcher_events(events: list[Event], clock: _Clock) -> Iterator[str]:
    if events:
        yield from _process(_LAUNCHER_PID, "launcher", -1)
        yield _thread(_LAUNCHER_PID, _TRACKS["marks"][0], "starts and ends")
        for mark in marks_of(events):
            yield _mark(_LAUNCHER_PID, mark, clock)


def _process(pid: int, name: str, place: int) -> Iterator[str]:
    yield f'{{"ph":"M","pid":{pid},"name":"process_name","args":{{"name":{_text(name)}}}}}'
    yield f'{{"ph":"M","pid":{pid},"name":"process_sort_index","args":{{"sort_index":{place}}}}}'


def _thread(pid: int, tid: int, name: str) -> str:
    args = f'{{"name":{_text(name)}}}'
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"thread_name","args":{args}}}'


def _slice(pid: int, piece: Slice, clock: _Clock) -> str:
    start = clock.at(piece.attempt, piece.start)
    end = clock.at(piece.attempt, piece.end)
    args = f',"args":{_json(piece.args)}' if piece.args else ""
    return (
        f'{{"ph":"X","pid":{pid},"tid":{_TRACKS[piece.track][0]},"ts":{start},'
        f'"dur":{max(end - start, 0)},"name":{_text(piece.name)}{args}}}'
    )


def _mark(pid: int, mark: Mark, clock: _Clock) -> str:
    return (
        f'{{"ph":"i","s":"t","pid":{pid},"tid":{_TRACKS["marks"][0]},'
        f'"ts":{clock.at(mark.attempt, mark.time)},"name":{_text(mark.name)},'
        f'"args":{_json(mark.args)}}}'
    )


def _counter(pid: int, counter: Counter, clock: _Clock) -> str:
    return (
        f'{{"ph":"C","pid":{pid},"ts":{clock.at(counter.attempt, counter.time)},'
        f'"name":{_text(counter.name)},"args":{{"value":{counter.value:.6g}}}}}'
    )


_encode = json.JSONEncoder(separators=(",", ":")).encode


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    return json.dumps(printable(text))


def _json(args: dict[str, Any]) -> str:
    return _encode({name: _plain(value) for name, value in args.items()})


def _plain(value: Any) -> Any:
    """JSON has no NaN, and viewers refuse a file with one."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return printable(value) if isinstance(value, str) else value


def _about(
    path: Path, ranks: list[RankLines], chosen: Keys, offsets: dict[str, Offset], zero: float
) -> dict[str, Any]:
    num_lines = sum(len(rank.keys) for rank in ranks)
    drawn = sum(int(np.isin(rank.keys, chosen).sum()) for rank in ranks)
    return {
        "run": printable(str(path)),
        "begins_at_unix_seconds": round(zero, 6),
        "clocks": {
            printable(host): {
                "ahead_seconds": offset.mean_seconds,
                "uncertainty_seconds": offset.uncertainty,
            }
            for host, offset in offsets.items()
        },
        "share_of_log_lines_drawn": round(drawn / max(num_lines, 1), 6),
        "known": "steps stand where they were; phases are sums over the steps of one log line, "
        "drawn one after the other; counters are means over the interval that begins there",
    }


def _write(file: Path, events: Iterable[str], about: dict[str, Any]) -> int:
    body = ",\n".join(events)
    text = (
        f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n{body}\n]}}\n'
    )
    content: bytes = text.encode()
    if file.suffix == ".gz":
        content = gzip.compress(content, compresslevel=3, mtime=0)
    try:
        write_whole(file, content)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}", "name another file") from error
    return len(content)
