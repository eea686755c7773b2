"""Whether other programs use the cores, looked at once, at the start of a command."""

import time
from functools import cache
from pathlib import Path

from paceline.machine.cores import core_numbers

_LOOK_SECONDS = 0.06
"""The kernel counts in hundredths of a second; a run's start is not delayed for more."""
_BUSY_SHARE = 0.2
_STATISTICS = Path("/proc/stat")


@cache
def cores_are_busy() -> bool:
    """Of the cores that this process may use, while it sleeps; False where nobody tells."""
    before = core_ticks(_read())
    time.sleep(_LOOK_SECONDS)
    return busy_share(before, core_ticks(_read())) > _BUSY_SHARE


def _read() -> str:
    try:
        return _STATISTICS.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def core_ticks(statistics: str) -> dict[str, tuple[int, int]]:
    """By core: ticks at work and ticks in all, as `/proc/stat` has them (user, nice, system, idle,
    waiting for a disk, interrupts, soft interrupts, stolen by another machine, ...)."""
    wanted = {f"cpu{number}" for number in core_numbers()}
    found = {}
    for line in statistics.splitlines():
        name, *ticks = line.split()
        if name in wanted and len(ticks) >= 8:
            numbers = [int(tick) for tick in ticks[:8]]
            found[name] = (sum(numbers) - numbers[3] - numbers[4], sum(numbers))
    return found


def busy_share(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float:
    both = [(before[name], after[name]) for name in before if name in after]
    at_work = sum(new[0] - old[0] for old, new in both)
    passed = sum(new[1] - old[1] for old, new in both)
    return at_work / passed if passed > 0 else 0.0
