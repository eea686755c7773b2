"""The lines of all ranks: when each was written, and the events of those that are drawn.

A run of 300,000 steps and 16 ranks has half a gigabyte of lines. Where they are and how slow their
slowest step was is found by patterns over the bytes; only what is drawn is parsed. The same lines
are drawn of every rank, so that a slow step and those who waited for it stand side by side.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.record.columns import rank_numbers
from paceline.record.events import Event, parse_event, parse_events
from paceline.record.schema import RunDirectory

Numbers = NDArray[np.float64]
Keys = NDArray[np.int64]

ATTEMPT_STRIDE = 1 << 40
"""A key is the attempt times this plus the last step of a line."""
_STEPS_LINE = re.compile(
    rb'\{"kind": "steps", "time": ([\d.]+), "attempt": (\d{1,6}), "step": (\d{1,12})\D'
)
_OTHER_LINE = re.compile(rb'\{"kind": "(?!steps")[^\n]*')
_SLOWEST = re.compile(rb'"slowest_step": \{"step": \d+, "seconds": ([\d.]+)')
_LEAST_BYTES = 4 << 20
"""A file below that is parsed line by line, whatever the order of its fields."""


@dataclass(frozen=True)
class RankLines:
    """One rank: its lines of steps, in the order of the file, and all its other events."""

    rank: int
    keys: Keys
    times: Numbers
    slowest_seconds: Numbers
    """Zero where a line does not tell it."""
    others: list[Event]
    source: Path | list[Event]
    """The file, or the events of the lines, parsed already."""
    places: Sequence[int]
    """Where each line begins in the source."""

    @property
    def host(self) -> str:
        begins = [event for event in self.others if event["kind"] == "begin"]
        return str(begins[-1].get("host", "")) if begins else ""

    @property
    def attempts(self) -> list[int]:
        return [int(number) for number in np.unique(self.keys // ATTEMPT_STRIDE)]

    def events(self, lines: Iterable[int]) -> Iterator[Event]:
        """Of some lines, in the order of the file."""
        if isinstance(self.source, list):
            yield from (self.source[line] for line in lines)
            return
        with self.source.open("rb") as file:
            for line in lines:
                file.seek(self.places[line])
                event = parse_event(file.readline())
                if event is not None and event["kind"] == "steps":
                    yield event


def key_of(attempt: int, step: int) -> int:
    return attempt * ATTEMPT_STRIDE + step


def attempt_and_step(key: int) -> tuple[int, int]:
    return divmod(key, ATTEMPT_STRIDE)


def read_lines(run: RunDirectory) -> list[RankLines]:
    return [_read_rank(run, rank) for rank in rank_numbers(run)]


def _read_rank(run: RunDirectory, rank: int) -> RankLines:
    try:
        content = run.rank_events(rank).read_bytes()
    except OSError:
        content = b""
    if len(content) >= _LEAST_BYTES:
        found = _found_by_pattern(rank, content, run.rank_events(rank))
        # Lines of another writer may have their fields in another order: then all are parsed.
        if len(found.keys) + len(found.others) > 0.9 * content.count(b"\n"):
            return found
    return _parsed_lines(rank, content)


def _found_by_pattern(rank: int, content: bytes, source: Path) -> RankLines:
    found = [(match.start(), *match.groups()) for match in _STEPS_LINE.finditer(content)]
    places, times, attempts, steps = zip(*found, strict=True) if found else ((), (), (), ())
    others = list(parse_events(match[0] for match in _OTHER_LINE.finditer(content)))
    return RankLines(
        rank,
        _numbers(attempts).astype(np.int64) * ATTEMPT_STRIDE + _numbers(steps).astype(np.int64),
        _numbers(times),
        _slowest_beside(places, content),
        others,
        source,
        places,
    )


def _numbers(texts: Sequence[bytes]) -> Numbers:
    return np.array(texts, dtype="S24").astype(np.float64)


def _slowest_beside(places: Sequence[int], content: bytes) -> Numbers:
    """Of each line the seconds of its slowest step."""
    seconds = np.zeros(len(places))
    found = [(match.start(), match[1]) for match in _SLOWEST.finditer(content)]
    if found and places:
        starts, told = zip(*found, strict=True)
        line = np.searchsorted(np.array(places), np.array(starts), side="right") - 1
        seconds[line[line >= 0]] = _numbers(told)[line >= 0]
    return seconds


def _parsed_lines(rank: int, content: bytes) -> RankLines:
    steps: list[Event] = []
    others: list[Event] = []
    for event in parse_events(content.splitlines()):
        (steps if event["kind"] == "steps" else others).append(event)
    slowest = [event.get("slowest_step", {}).get("seconds", 0.0) for event in steps]
    return RankLines(
        rank,
        np.array([key_of(event["attempt"], event["step"]) for event in steps], dtype=np.int64),
        np.array([event["time"] for event in steps], dtype=np.float64),
        np.array(slowest, dtype=np.float64),
        others,
        steps,
        range(len(steps)),
    )


def choose_lines(ranks: list[RankLines], most_lines: int) -> Keys:
    """Which are drawn: all, or half of them evenly spread and half those with the slowest steps."""
    keys, place = np.unique(np.concatenate([rank.keys for rank in ranks]), return_inverse=True)
    if len(keys) <= most_lines:
        return keys
    slowest = np.zeros(len(keys))
    np.maximum.at(slowest, place, np.concatenate([rank.slowest_seconds for rank in ranks]))
    half = max(most_lines // 2, 1)
    spread = np.linspace(0, len(keys) - 1, half).astype(int)
    chosen: Keys = keys[np.union1d(spread, np.argpartition(-slowest, half)[:half])]
    return chosen
