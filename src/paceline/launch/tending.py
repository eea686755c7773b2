"""The workers of one agent where processes have roles: who may be lost is started again.

All processes know their ranks from the launcher, so they need no rendezvous of their own; they find
each other through the store. A lost worker of a run that survives it is started anew as a fresh
process; anybody else's loss ends the round.
"""

import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from paceline.launch.workers import StartedWorker, Worker, end_workers
from paceline.order import WorkerOrder
from paceline.settings import StrategySettings
from paceline.strategies.roles import Roles

if TYPE_CHECKING:
    from paceline.launch.elastic import Part

_LOOK_SECONDS = 0.1
_END_SECONDS = 30.0
_MOST_STARTS = 5
"""Of one worker that does not live for long."""
_LONG_SECONDS = 60.0
_LATE_SECONDS = 10.0
"""For workers that have not noticed the end of all others."""


def in_roles(
    order: WorkerOrder, roles: Roles, strategy: StrategySettings, store: str
) -> WorkerOrder:
    """The order to every process of a run with roles; a token of its own for each round."""
    lost = strategy.survives_lost_workers
    ranks = [rank for rank in range(roles.size) if lost and roles.is_replaceable(rank)]
    return replace(
        order,
        store=store,
        roles=roles.by_rank,
        replaceable=tuple(ranks),
        token=secrets.token_hex(16),
    )


@dataclass
class Tended:
    """One process of this host, and how often it has been started."""

    worker: Worker
    rank: int
    variables: dict[str, str]
    began: float = 0.0
    num_starts: int = 0

    def begin(self) -> None:
        self.began = time.monotonic()
        self.num_starts += 1
        self.worker.begin(self.variables)


def tend_workers(
    run: str, part: "Part", workers: Sequence[Worker], order: WorkerOrder
) -> dict[int, Any]:
    """Until all have ended; by rank, the failures that ended the round."""
    tended = _begin_all(part, workers, order)
    failures: dict[int, Any] = {}
    while not failures:
        time.sleep(_LOOK_SECONDS)
        for each in tended:
            code = each.worker.poll()
            if code and not _begin_again(run, each, order, code):
                failures[each.rank] = _failure(part, each, order, code)
        if all(each.worker.poll() == 0 for each in tended):
            return {}
        if all(each.worker.poll() == 0 for each in tended if each.rank not in order.replaceable):
            end_workers([each.worker for each in tended], signal.SIGTERM, _LATE_SECONDS)
            return {}
    end_workers([each.worker for each in tended], signal.SIGTERM, _END_SECONDS)
    for each in tended:
        code = each.worker.poll()
        if code:
            failures.setdefault(each.rank, _failure(part, each, order, code))
    return failures


def _begin_all(part: "Part", workers: Sequence[Worker], order: WorkerOrder) -> list[Tended]:
    first = order.first_rank or 0
    tended = []
    for number, worker in enumerate(workers):
        variables = {
            "RANK": str(first + number),
            "WORLD_SIZE": str(len(order.roles)),
            "LOCAL_RANK": str(number),
            "LOCAL_WORLD_SIZE": str(len(workers)),
            "TORCHELASTIC_ERROR_FILE": _error_file(part, number),
            **part.variables,
        }
        tended.append(Tended(worker, first + number, variables))
    for each in tended:
        each.begin()
    return tended


def _begin_again(run: str, lost: Tended, order: WorkerOrder, code: int) -> bool:
    """Whether the round goes on without it until it is back."""
    if lost.rank not in order.replaceable:
        return False
    if time.monotonic() - lost.began > _LONG_SECONDS:
        lost.num_starts = 1
    if lost.num_starts >= _MOST_STARTS:
        return False
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    name = Roles(order.roles).name_of(lost.rank)
    text = f"{name} (rank {lost.rank}, pid {lost.worker.pid}) ended with {how}; it is started again"
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    lost.worker = StartedWorker(run)
    lost.begin()
    return True


def _error_file(part: "Part", number: int) -> str:
    return str(part.error_directory / f"error-{number}.json")


def _failure(part: "Part", lost: Tended, order: WorkerOrder, code: int) -> Any:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure  # noqa: PLC0415

    number = lost.rank - (order.first_rank or 0)
    return ProcessFailure(number, lost.worker.pid, code, _error_file(part, number))
