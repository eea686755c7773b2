"""Who hangs: judged from what the processes of a world tell. Pure functions of plain data, but for
`StepPace`, which remembers how long steps took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    IDLE,
    INPUT,
    NETWORK,
    OPTIMIZER,
    START_UP,
    UNEXPLAINED,
)
from paceline.units import format_seconds

_PATIENCE = {START_UP: 20.0, UNEXPLAINED: 20.0, EVALUATE: 20.0, CHECKPOINT: 20.0}
"""How many times longer than a step's phases these may go without a sign of progress."""

SLOW_STEPS = 10.0
"""A rank that is this many times over the slowest step so far is not merely slow."""

STARTING_SECONDS = 120.0
"""Imports hold the interpreter for seconds on a busy machine."""

_STEP_PHASES = (INPUT, COMPUTE, NETWORK, OPTIMIZER)


@dataclass(frozen=True)
class RankState:
    """Where one process was when it last told."""

    host: str
    """Empty where there is only one."""
    rank: int
    step: int
    phase: str
    collective: str | None
    quiet_seconds: float
    """Since its main thread last entered or left a phase, or bytes of the collective flowed."""
    silent_seconds: float
    """Since it last told anything."""
    stop_asked: bool = False
    ended: str | None = None
    collective_number: int | None = None
    """Of the collective, counted alike by all processes, where torch's flight recorder tells."""
    collective_sizes: str | None = None
    collective_group: str | None = None
    at: str | None = None
    """The line of the user's code, where a script is observed."""
    pid: int | None = None
    stopped_seconds: float = 0.0
    """Since a signal has stopped it (SIGSTOP)."""

    @classmethod
    def of(cls, host: str, beat: dict[str, Any]) -> "RankState":
        return cls(
            host,
            beat["rank"],
            beat["step"],
            beat["phase"],
            beat["collective"],
            beat["quiet_seconds"],
            beat.get("silent_seconds", 0.0),
            beat["stop_asked"],
            beat["ended"],
            beat.get("collective_number"),
            beat.get("collective_sizes"),
            beat.get("collective_group"),
            beat.get("at"),
            beat.get("pid"),
            beat.get("stopped_seconds", 0.0),
        )

    @property
    def who(self) -> str:
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"

    @property
    def place(self) -> str:
        phase = self.phase
        if phase == UNEXPLAINED:
            phase = "between steps" if self.step else START_UP
        where = f"{self.who}, step {self.step:,}, {phase}"
        where += f", at {self.at}" if self.at else ""
        number = f" number {self.collective_number:,}" if self.collective_number else ""
        return f"{where}, waiting in {self.collective}{number}" if self.collective else where


class StepPace:
    """How long a step takes; evaluations and checkpoints between two steps are none of it."""

    def __init__(self) -> None:
        self.slowest_seconds = 0.0
        self.last_step = 0
        self._at = time.monotonic()
        self._is_stepping = True

    def follow(self, beats: Sequence[dict[str, Any]]) -> None:
        step = max((beat["step"] for beat in beats), default=0)
        self._is_stepping &= all(beat["phase"] in (*_STEP_PHASES, IDLE) for beat in beats)
        if step <= self.last_step:
            return
        now = time.monotonic()
        if self.last_step and self._is_stepping:
            seconds = (now - self._at) / (step - self.last_step)
            self.slowest_seconds = max(self.slowest_seconds, seconds)
        self.last_step, self._at, self._is_stepping = step, now, True


@dataclass(frozen=True)
class Hang:
    guilty: tuple[RankState, ...]
    text: str


@dataclass(frozen=True)
class HangNews:
    """What is said about a hang, and whether the round ends because of it."""

    text: str
    ends_round: bool
    stacks: str = ""
    """Where the stacks of all processes are, if not in what they print."""


def without_replaceable(states: Sequence[RankState], replaceable: Sequence[int]) -> list[RankState]:
    """Where workers may be lost, they are looked after on their own host; and who waits for them
    may wait for as long as they compute."""
    if not replaceable:
        return list(states)
    return [replace(s, quiet_seconds=0.0) for s in states if s.rank not in replaceable]


def find_hang(
    states: Sequence[RankState], hang_seconds: float, slowest_step_seconds: float
) -> Hang | None:
    """Who keeps the others waiting, or None. A process that has ended cannot hang."""
    living = [state for state in states if state.ended is None]
    has_begun = any(state.phase in _STEP_PHASES for state in living)
    silent = [s for s in living if s.silent_seconds > _silence_limit(s, hang_seconds, has_begun)]
    if silent:
        longest = format_seconds(max(state.silent_seconds for state in silent))
        return Hang(tuple(silent), f"{_places(silent)}: no sign of life for {longest}")
    late = [s for s in living if s.quiet_seconds > _limit(s, hang_seconds, slowest_step_seconds)]
    if not late or len(late) < len(living):
        return None  # somebody still moves, so nobody has kept all others waiting for long
    busy = [state for state in late if state.collective is None]
    quiet = format_seconds(min(state.quiet_seconds for state in late))
    if busy:
        return Hang(tuple(busy), f"{_places(busy)}: no progress for {quiet} while others wait")
    if behind := _behind(late):
        return Hang(tuple(behind), f"{_places(behind)}: behind the others, who wait for {quiet}")
    return Hang(tuple(late), f"all processes have waited for each other for {quiet}")


def _behind(waiting: Sequence[RankState]) -> list[RankState]:
    """Who is in an earlier collective than others, where all tell the number of theirs."""
    numbers = [state.collective_number for state in waiting]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers) or min(known) == max(known):
        return []
    return [state for state in waiting if state.collective_number == min(known)]


def _silence_limit(state: RankState, hang_seconds: float, has_begun: bool) -> float:
    """A process that fell silent right after its start last told of starting; but where one is in
    a step, all have started, because they rehearse a step together before."""
    starting = state.phase in (START_UP, UNEXPLAINED) and not has_begun
    return max(hang_seconds, STARTING_SECONDS) if starting else hang_seconds


def _limit(state: RankState, hang_seconds: float, slowest_step_seconds: float) -> float:
    patience = hang_seconds * _PATIENCE.get(state.phase, 1.0)
    return max(patience, SLOW_STEPS * slowest_step_seconds)


def _places(states: Sequence[RankState]) -> str:
    return "; ".join(state.place for state in states)
