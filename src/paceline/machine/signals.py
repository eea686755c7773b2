"""Signals to the processes that launch: who gets them while there is something to end in order.

A worker's own are in `train`: there SIGTERM asks the loop to save and stop.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

FROM_A_TERMINAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROM_A_SCHEDULER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)


def survive(*numbers: int) -> None:
    """Do nothing at these signals, for good. With a handler: what is ignored is ignored by every
    child as well, and workers must hear of it."""
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)


@contextmanager
def unmoved_by_closed_terminal() -> Iterator[None]:
    """A terminal that closes sends SIGHUP up to three times: the kernel, the shell, and the kernel
    again when the shell ends. After the first everything is on its way; the others may come late.
    """
    with caught_by(lambda _number, _frame: None, [signal.SIGHUP]):
        yield


@contextmanager
def caught_by(
    handler: Callable[[int, Any], None], numbers: Iterable[int] = FROM_A_TERMINAL
) -> Iterator[None]:
    """These signals go to the handler meanwhile; what was there before comes back.

    A closed terminal that is ignored stays ignored: that is what `nohup` asks for.
    """
    wanted = [number for number in numbers if not _is_nohup(number)]
    before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _is_nohup(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
