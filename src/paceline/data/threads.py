"""Work for threads, for functions that let go of Python's lock. What is worked on is not known."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    ahead: int,
) -> Iterator[_Result]:
    """Results in the order of the items; only so many are ahead, for results may be large."""
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
