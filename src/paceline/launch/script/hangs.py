"""Who keeps the processes of a stranger's script waiting. Judgements on plain data, but for
`ScriptHangs`, which remembers what was said.

A script may do anything between its steps, so what looks like a hang is named at once and ended
late: only where no wait can ever end (two processes in different collectives), or after
`end_seconds` in which nobody has moved, is a run ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.hang import HangNews, RankState
from paceline.units import format_seconds

HANG_SECONDS = 15.0
"""Without movement, before it is said: a hang is to be known within 30 s."""
END_SECONDS = 300.0
_STOPPED_SECONDS = 5.0
_SLOW_STEPS = 5.0
"""Waiting for so many times the slowest step so far is not merely slow."""


@dataclass(frozen=True)
class Stall:
    guilty: tuple[RankState, ...]
    text: str
    nobody_moves: bool
    is_for_good: bool = False
    """Whether nothing that happens could end it."""


def find_stall(
    states: Sequence[RankState], hang_seconds: float, slowest_step_seconds: float
) -> Stall | None:
    """None as long as nobody has waited for long."""
    living = [state for state in states if state.ended is None]
    limit = max(hang_seconds, _SLOW_STEPS * slowest_step_seconds)
    is_still = all(state.quiet_seconds > limit or state.stopped_seconds for state in living)
    stopped = [state for state in living if state.stopped_seconds > _STOPPED_SECONDS]
    if stopped:
        return _stopped(stopped, nobody_moves=is_still)
    silent = [state for state in living if state.silent_seconds > limit]
    if silent:
        quiet = format_seconds(max(state.silent_seconds for state in silent))
        text = f"{_places(silent)}: Python there has not run for {quiet}"
        return Stall(tuple(silent), text, is_still)
    waiting = [s for s in living if s.collective is not None and s.quiet_seconds > limit]
    if waiting:
        return _waiting(waiting, states, is_still)
    if living and is_still:
        quiet = format_seconds(min(state.quiet_seconds for state in living))
        return Stall(tuple(living), f"nothing has moved for {quiet}: {_places(living)}", True)
    return None


def _stopped(stopped: list[RankState], nobody_moves: bool) -> Stall:
    quiet = format_seconds(max(state.stopped_seconds for state in stopped))
    wake = "; ".join(f"on {s.host}: kill -CONT {s.pid}" for s in stopped if s.pid is not None)
    text = f"{_places(stopped)}: stopped (SIGSTOP) for {quiet}; to wake it, {wake}"
    return Stall(tuple(stopped), text, nobody_moves)


def _waiting(
    waiting: list[RankState], states: Sequence[RankState], nobody_moves: bool
) -> Stall | None:
    """Some wait for others: for those that have ended, or that are elsewhere, or behind."""
    for_long = format_seconds(max(state.quiet_seconds for state in waiting))
    wait = f"{_ranks(waiting)} in {_collective(waiting[0])} for {for_long}"
    gone = [state for state in states if state.ended is not None]
    if gone:
        text = f"{_places(gone)}: has ended ({gone[0].ended}) while others go on; waiting: {wait}"
        return Stall(
            tuple(gone), text, nobody_moves, is_for_good=len(gone) + len(waiting) == len(states)
        )
    elsewhere = [state for state in states if state.collective is None]
    if elsewhere:
        text = f"{_places(elsewhere)}: has not come; waiting: {wait}"
        return Stall(tuple(elsewhere), text, nobody_moves)
    if len(waiting) < len(states):
        return None  # the others have begun to wait only now: somebody has moved
    return _all_wait(waiting, for_long)


def _all_wait(waiting: list[RankState], for_long: str) -> Stall:
    numbers = {s.collective_number for s in waiting}
    calls = {(s.collective_group, s.collective, s.collective_sizes) for s in waiting}
    if None not in numbers and len({s.collective_group for s in waiting}) == 1:
        if len(numbers) == 1 and len(calls) > 1:
            shown = "; ".join(f"{s.who} in {_collective(s, with_sizes=True)}" for s in waiting)
            text = f"the processes are in different collectives: {shown}; none of them can end"
            return Stall(tuple(waiting), text, nobody_moves=True, is_for_good=True)
        if len(numbers) > 1:
            least = min(number for number in numbers if number is not None)
            behind = [s for s in waiting if s.collective_number == least]
            text = f"{_places(behind)}: behind the others, who have waited for {for_long}"
            return Stall(tuple(behind), text, nobody_moves=True)
    text = f"all processes have waited for each other for {for_long}: {_places(waiting)}"
    return Stall(tuple(waiting), text, nobody_moves=True)


def _collective(state: RankState, with_sizes: bool = False) -> str:
    number = f" number {state.collective_number:,}" if state.collective_number else ""
    sizes = f" of {state.collective_sizes}" if with_sizes and state.collective_sizes else ""
    return f"{state.collective}{number}{sizes}"


def _places(states: Sequence[RankState]) -> str:
    return "; ".join(state.place for state in states)


def _ranks(states: Sequence[RankState]) -> str:
    return ", ".join(state.who for state in states)


class ScriptHangs:
    """Says each stall once; ends the round when nobody has moved for `end_seconds`."""

    def __init__(self, run: Path, hang_seconds: float, end_seconds: float) -> None:
        """`end_seconds`: 0 never ends it."""
        self._run, self._hang_seconds, self._end_seconds = run, hang_seconds, end_seconds
        self._said: tuple[tuple[int, int], ...] | None = None

    def look(self, states: Sequence[RankState], slowest_step_seconds: float) -> HangNews | None:
        stall = find_stall(states, self._hang_seconds, slowest_step_seconds)
        if stall is None:
            self._said = None
            return None
        ends = stall.is_for_good or self._is_over(stall, states)
        key = tuple((state.rank, state.step) for state in stall.guilty)
        if key == self._said and not ends:
            return None
        self._said = key
        text = stall.text + ("" if ends else self._what_follows(stall))
        return HangNews(text, ends, f"stacks of all processes: {self._run}/stacks")

    def _is_over(self, stall: Stall, states: Sequence[RankState]) -> bool:
        quiet = [s.quiet_seconds for s in states if s.ended is None and not s.stopped_seconds]
        longest = min(quiet, default=max((s.stopped_seconds for s in states), default=0.0))
        return stall.nobody_moves and 0 < self._end_seconds < longest

    def _what_follows(self, stall: Stall) -> str:
        if not stall.nobody_moves or not self._end_seconds:
            return " (it goes on)"
        limit = format_seconds(self._end_seconds)
        return f" (the run ends when nothing has moved for {limit}: --hang-timeout)"
