"""Faults for practice and tests: a phase made slower on purpose, by a known number of seconds.

`PACELINE_PRACTICE=input=0.2,compute@1=0.5,disk=2` adds 0.2 s to the input of every step, 0.5 s to
the forward pass of rank 1, and 2 s to each writing of a checkpoint. A run that is slowed so says so
in a warning. There is no `network` here: a slow link is made with a slow link (`paceline lab`).
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from paceline.errors import UserError
from paceline.record.phases import PhaseClock
from paceline.record.schema import CHECKPOINT, COMPUTE, EVALUATE, INPUT, OPTIMIZER

VARIABLE = "PACELINE_PRACTICE"
DISK = "disk"
_PLACES = (INPUT, COMPUTE, OPTIMIZER, EVALUATE, CHECKPOINT, DISK)
_FORM = f"write {VARIABLE}=PHASE=SECONDS or PHASE@RANK=SECONDS with commas between; a phase is one "


class PracticeClock(PhaseClock):
    """A clock that lingers whenever it enters a phase."""

    def __init__(self, pauses: Mapping[str, float]) -> None:
        super().__init__()
        self._pauses = pauses

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with super().phase(name):
            time.sleep(self._pauses.get(name, 0.0))
            yield


def clock_of(rank: int) -> PhaseClock:
    pauses = pauses_of(rank, asked())
    return PracticeClock(pauses) if pauses else PhaseClock()


def asked() -> str:
    return os.environ.get(VARIABLE, "")


def pause_disk() -> None:
    """What a slow disk adds to a save; only the first process writes."""
    if asked():
        time.sleep(pauses_of(0, asked()).get(DISK, 0.0))


def pauses_of(rank: int, text: str) -> dict[str, float]:
    """Seconds by phase for one rank."""
    pauses: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        phase, who, seconds = _parse(part)
        if who in (None, rank):
            pauses[phase] = pauses.get(phase, 0.0) + seconds
    return pauses


def _parse(part: str) -> tuple[str, int | None, float]:
    where, _, amount = part.partition("=")
    phase, at, who = where.partition("@")
    try:
        rank, seconds = int(who) if at else None, float(amount)
    except ValueError:
        raise _wrong(part) from None
    if phase not in _PLACES or not 0 <= seconds < 3600:
        raise _wrong(part)
    return phase, rank, seconds


def _wrong(part: str) -> UserError:
    return UserError(f"{VARIABLE} has '{part}'", f"{_FORM}of {', '.join(_PLACES)}")
