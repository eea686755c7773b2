"""Processes that share the work of preparing data.

Processes and not threads: SentencePiece lets go of Python's lock, but decoding, cleaning and
counting words do not, and they are a third of the work. What is worked on is not known here.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Final, TypeVar

from paceline.errors import UserError
from paceline.machine.cores import num_cores

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# Each worker holds about 70 MB; more of them would break the promise of 2 GB, and by then the disk
# is what everybody waits for.
_MOST_WORKERS: Final = 16
_PRELOADED: Final = "paceline.tasks.nmt.preparation.steps"


def default_num_workers() -> int:
    return min(num_cores(), _MOST_WORKERS)


def run_all(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], num_workers: int
) -> Iterator[tuple[int, _Result]]:
    """(number of the task, its result) as they are done; one worker is this process itself.

    When anything fails here, also an interrupt from the keyboard, the workers are ended at once:
    whatever they were at is either complete on disk or not there.
    """
    if num_workers == 1 or not tasks:
        yield from ((number, function(task)) for number, task in enumerate(tasks))
        return
    others = set(multiprocessing.active_children())
    # A server that has the imports done and forks from there: a worker costs a hundredth of a
    # second, where a fresh interpreter for each would cost a third of one at every step.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    pool = ProcessPoolExecutor(min(num_workers, len(tasks)), context, _prepare_worker)
    try:
        futures = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException as error:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                "a worker process was killed (is the machine out of memory?)",
                "run the same command again: it goes on where it was",
            ) from error
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """A worker whose parent was killed must not stay behind, working for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
