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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import EXIT_USER_ERROR
from paceline.launch.failures import message_of
from paceline.launch.hang import SLOW_STEPS, STARTING_SECONDS
from paceline.launch.remote.host_facts import read_pulses
from paceline.launch.workers import StartedWorker, Worker, end_workers
from paceline.order import WorkerOrder
from paceline.record.schema import COMPUTE, INPUT, START_UP, UNEXPLAINED
from paceline.settings import Recipe
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


def new_token() -> str:
    """Of one round: whoever knows it is let in."""
    return secrets.token_hex(16)


def in_roles(order: WorkerOrder, roles: Roles, recipe: Recipe, token: str | None) -> WorkerOrder:
    """The order to a process of a run with roles."""
    lost = recipe.strategy.survives_lost_workers
    ranks = [rank for rank in range(roles.size) if lost and roles.is_replaceable(rank)]
    return replace(
        order,
        roles=roles.by_rank,
        replaceable=tuple(ranks),
        hang_seconds=recipe.guard.hang_seconds,
        token=token,
    )


@dataclass
class Tended:
    """One process of this host, and how often it has been started."""

    worker: Worker
    rank: int
    variables: dict[str, str]
    began: float = 0.0
    num_starts: int = 0
    is_given_up: bool = False
    """It failed again and again, and the others go on without it."""

    step: int = 0
    step_since: float = 0.0
    slowest_step_seconds: float = 0.0
    has_begun: bool = False
    """It has trained since it was started: between two steps it is not starting any more."""

    def note_beat(self, beat: dict[str, Any]) -> None:
        """How long its steps take."""
        now = time.monotonic()
        self.has_begun |= beat["has_begun"]
        if beat["step"] != self.step:
            if self.step and self.step_since:
                seconds = now - self.step_since
                self.slowest_step_seconds = max(self.slowest_step_seconds, seconds)
            self.step, self.step_since = beat["step"], now

    def why_stuck(
        self, beat: dict[str, Any], silent_seconds: float, hang_seconds: float
    ) -> str | None:
        """Silent, or in one phase of a step for far longer than its steps ever took."""
        starting = beat["phase"] in (START_UP, UNEXPLAINED) and not self.has_begun
        if silent_seconds > (max(hang_seconds, STARTING_SECONDS) if starting else hang_seconds):
            return f"gave no sign of life for {silent_seconds:.0f} s"
        limit = max(hang_seconds, SLOW_STEPS * self.slowest_step_seconds)
        is_stepping = beat["phase"] in (INPUT, COMPUTE) and beat["collective"] is None
        if is_stepping and beat["quiet_seconds"] > limit:
            return f"made no progress in {beat['phase']} for {beat['quiet_seconds']:.0f} s"
        return None

    def begin(self) -> None:
        self.began = time.monotonic()
        self.num_starts += 1
        self.has_begun = False
        self.worker.begin(self.variables)


def tend_workers(
    run: str, part: "Part", workers: Sequence[Worker], order: WorkerOrder
) -> dict[int, Any]:
    """Until all have ended; by rank, the failures that ended the round."""
    tended = _begin_all(part, workers, order)
    failures: dict[int, Any] = {}
    while not failures:
        time.sleep(_LOOK_SECONDS)
        _end_stuck(tended, order)
        for each in [each for each in tended if not each.is_given_up]:
            code = each.worker.poll()
            if code and not _goes_on(run, part, each, order):
                failures[each.rank] = _failure(part, each, order, code)
        if all(each.worker.poll() == 0 or each.is_given_up for each in tended):
            return {}
        vital = [each for each in tended if each.rank not in order.replaceable]
        if vital and all(each.worker.poll() == 0 for each in vital):
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


def _end_stuck(tended: Sequence[Tended], order: WorkerOrder) -> None:
    """Who may be lost and gives no sign of life is killed, and so started again."""
    if order.pulse_directory is None or not order.replaceable:
        return
    living = {each.rank: each for each in tended if each.worker.poll() is None}
    for beat, silent_seconds in read_pulses(Path(order.pulse_directory)):
        each = living.get(beat["rank"])
        if each is None or each.rank not in order.replaceable or beat["pid"] != each.worker.pid:
            continue
        each.note_beat(beat)
        why = each.why_stuck(beat, silent_seconds, order.hang_seconds)
        if why is not None:
            name = Roles(order.roles).name_of(each.rank)
            _say(f"hang: {name} (rank {each.rank}, pid {each.worker.pid}) {why}; it is killed")
            each.worker.send_signal(signal.SIGKILL)


def _goes_on(run: str, part: "Part", lost: Tended, order: WorkerOrder) -> bool:
    """Whether the round goes on without it; mostly until it is back."""
    code = lost.worker.poll() or 0
    is_first_mistake = code == EXIT_USER_ERROR and lost.num_starts == 1
    if lost.rank not in order.replaceable or is_first_mistake:
        return False
    if time.monotonic() - lost.began > _LONG_SECONDS:
        lost.num_starts = 1
    lost.is_given_up = lost.num_starts >= _MOST_STARTS or code == EXIT_USER_ERROR
    what = "it is not started again" if lost.is_given_up else "it is started again"
    name = Roles(order.roles).name_of(lost.rank)
    how = _how_it_ended(_failure(part, lost, order, code))
    _say(f"{name} (rank {lost.rank}, pid {lost.worker.pid}) {how}; {what}")
    if not lost.is_given_up:
        lost.worker = StartedWorker(run)
        lost.begin()
    return True


def _how_it_ended(failure: Any) -> str:
    if failure.exitcode < 0:
        return f"was killed by {signal.Signals(-failure.exitcode).name}"
    message = message_of(failure)
    said = message if failure.exitcode == EXIT_USER_ERROR else message.strip().rpartition("\n")[2]
    return f"failed: {said}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _error_file(part: "Part", number: int) -> str:
    return str(part.error_directory / f"error-{number}.json")


def _failure(part: "Part", lost: Tended, order: WorkerOrder, code: int) -> Any:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure  # noqa: PLC0415

    number = lost.rank - (order.first_rank or 0)
    return ProcessFailure(number, lost.worker.pid, code, _error_file(part, number))
