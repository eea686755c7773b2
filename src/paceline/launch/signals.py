"""Signals to a launcher, while it has something to end in order."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal go to the handler; what was there before comes back."""
    before = {number: signal.signal(number, handler) for number in _CAUGHT}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
