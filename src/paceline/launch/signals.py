"""Signals to a launcher, while it has something to end in order."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

FROM_A_TERMINAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROM_A_SCHEDULER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


@contextmanager
def caught_by(
    handler: Callable[[int, Any], None], numbers: Iterable[int] = FROM_A_TERMINAL
) -> Iterator[None]:
    """These signals go to the handler meanwhile; what was there before comes back."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
