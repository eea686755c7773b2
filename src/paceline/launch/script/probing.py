"""What this host does while a script runs: the same probe as of Paceline's own runs, in the
launcher, so that the script pays nothing."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.machine.interfaces import interface_used
from paceline.machine.probe import HostProbe
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile

_EVERY_SECONDS = 2.0
_MOST_EVERY_SECONDS = 60.0
_GROWTH = 1.002
"""Of the time between two looks: a run of a week has some thousands."""
_TAIL_BYTES = 1 << 16


@contextmanager
def probing(
    run: RunDirectory, attempt: int, host: str, interface: str | None = None
) -> Iterator[None]:
    """`interface`: over which the hosts of a world talk; None is this machine's own."""
    over = threading.Event()
    arguments = (over, run, attempt, host, interface)
    thread = threading.Thread(target=_look_until, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)


def _look_until(
    over: threading.Event, run: RunDirectory, attempt: int, host: str, interface: str | None
) -> None:
    """Whatever goes wrong here leaves the script alone."""
    try:
        probe = HostProbe(host, interface or interface_used(1))
        events = EventFile(run.host_events(host), attempt)
        every, is_last = _EVERY_SECONDS, False
        while not is_last:
            is_last = over.wait(every)
            every = min(every * _GROWTH, _MOST_EVERY_SECONDS)
            events.write("probe", step=last_step(run), **probe.look())
        events.close()
    except Exception:
        return


def last_step(run: RunDirectory) -> int:
    """That the first rank has written of."""
    for line in reversed(_last_lines(run.rank_events(0))):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            return file.read().splitlines()
    except OSError:
        return []
