"""What went wrong in a process of a script, in the words of the field. Pure functions."""

import re
import signal
from collections.abc import Sequence

from paceline.launch.failures import Failure, final_words, is_second_hand
from paceline.launch.hang import RankState
from paceline.record.schema import START_UP, UNEXPLAINED

_KINDS = (
    (
        re.compile(r"(?i)out of memory|can't allocate memory|cannot allocate memory|memoryerror"),
        "is out of memory",
        "lower the script's batch size, or start fewer processes on that host (--procs)",
    ),
    (
        re.compile(
            r"(?i)no space left on device|disk quota exceeded|errno 28|"
            r"pytorchstreamwriter failed writing|unexpected pos"
        ),
        "could not write a file, because the disk is full",
        "make room there, or have the script write elsewhere",
    ),
    (
        re.compile(r"ModuleNotFoundError: No module named '([^']+)'"),
        "needs a module that is not installed there",
        "install it in the Python of that host",
    ),
)
LEFT = "exit code 0"
"""How a worker's heartbeat tells that it has ended as if all was done."""


def name_failure(cause: Failure, states: Sequence[RankState], full_disks: Sequence[str]) -> str:
    """Who failed, how, where, with its last words."""
    if is_second_hand(cause.message):
        gone = [state for state in states if state.ended == LEFT]
        if gone and cause.exit_code != 0:
            return _left_early(gone, cause)
    where = _where(cause.state)
    who = f"rank {cause.rank} on {cause.host}" if cause.rank is not None else cause.host
    if cause.exit_code == -signal.SIGKILL:
        return f"{who} was killed by SIGKILL{where}{_killed(cause)}"
    if cause.exit_code < 0:
        name = signal.Signals(-cause.exit_code).name
        return f"{who} was killed by {name}{where}\n{cause.message}".rstrip()
    what, remedy = _kind(cause.message)
    full = f"; full there: {', '.join(full_disks)}" if full_disks and "disk" in what else ""
    fix = f"\n  fix: {remedy}" if remedy else ""
    return f"{who} {what}{where} (exit code {cause.exit_code}){full}{fix}\n{cause.message}".rstrip()


def _where(state: RankState | None) -> str:
    if state is None:
        return ""
    phase = START_UP if state.phase == UNEXPLAINED and not state.step else state.phase
    shown = "" if phase == UNEXPLAINED else f" in {phase}"
    return f"{shown} at step {state.step:,}" if state.step else shown


def _left_early(gone: Sequence[RankState], cause: Failure) -> str:
    places = "; ".join(f"{s.who} after step {s.step:,}" for s in gone)
    last = final_words(cause.message).strip().splitlines()
    seen = f"\n  rank {cause.rank} on {cause.host} then failed: {last[-1]}" if last else ""
    return f"{places}: left early, with exit code 0, while others went on{seen}"


def _killed(cause: Failure) -> str:
    remedy = _KINDS[0][2]
    if cause.memory_kills:
        return f": the host is out of memory\n  fix: {remedy}"
    return " (by hand, or by a kernel that is out of memory)"


def _kind(message: str) -> tuple[str, str]:
    words = final_words(message)
    for pattern, what, remedy in _KINDS:
        if pattern.search(words):
            return what, remedy
    return "failed", ""
