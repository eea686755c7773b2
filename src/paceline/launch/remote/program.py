"""What the workers of a world on many hosts execute: our training, or a user's script.

All that differs between the two for the launcher is here and in `launch/script/hosts.py`; the rest
of this room knows rounds, hosts and heartbeats only.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from paceline import config
from paceline.doctor.examination import Purpose
from paceline.errors import Say
from paceline.hosts.file import Host
from paceline.launch.claim import Job, claim_run
from paceline.launch.ending import ending_in_words
from paceline.launch.failures import Failure
from paceline.launch.hang import HangNews, RankState, find_hang
from paceline.launch.remote.restart import Outcome
from paceline.launch.tending import in_roles, new_token
from paceline.machine.tuning import exact_environment
from paceline.order import WorkerOrder
from paceline.project import as_question
from paceline.recipe import refuse_too_many_processes
from paceline.record.schema import RunDirectory
from paceline.settings import GuardSettings
from paceline.strategies.placement import Placement, place
from paceline.strategies.roles import Roles
from paceline.terminal import printable

Message = dict[str, Any]


class HangWatch(Protocol):
    """Looks at all processes of a world again and again, and says when they hang."""

    def look(self, states: Sequence[RankState], slowest_step_seconds: float) -> HangNews | None: ...


@dataclass(frozen=True)
class End:
    """What else is known when a worker has failed."""

    states: Sequence[RankState]
    full_disks: Sequence[str] = ()
    """Of the host where it failed."""


@dataclass(frozen=True)
class Kept:
    """What hosts told about what is saved, when they were asked."""

    looked: Sequence[Message]
    newest_step: int
    """Of our own checkpoints; -1 if there is none."""
    last_step: int
    """That any process has told."""


class Program(Protocol):
    @property
    def run(self) -> RunDirectory: ...
    @property
    def num_procs(self) -> int:
        """Per host; 0 is as many as each has devices."""

    @property
    def command(self) -> str:
        """What the user typed; repeated when saying how to go on."""

    @property
    def guard(self) -> GuardSettings: ...
    @property
    def min_hosts(self) -> int | None:
        """With how many hosts it may go on; None leaves it to the hosts file."""

    @property
    def device(self) -> str: ...
    @property
    def can_take_in_hosts(self) -> bool:
        """Whether it may be stopped to go on with a host that has come back."""

    @property
    def stopping(self) -> str:
        """What is said when the user asks for the end."""

    @property
    def stops_by_itself(self) -> bool:
        """Whether a worker that is asked to stop ends as one that has finished."""

    @property
    def stop_seconds(self) -> float | None:
        """How long workers may take to end when they are asked; None is as long as they need."""

    @property
    def purpose(self) -> Purpose:
        """For the doctor."""

    def claim(self, say: Say) -> AbstractContextManager[None]: ...
    def refuse_processes(self, num_procs: int) -> None: ...
    def place(
        self, hosts: Sequence[Host], num_procs: Sequence[int], absent: Sequence[str] = ()
    ) -> Placement | None:
        """Who is who on the hosts of a round, where processes have roles; `num_procs` of each
        without them. `absent`: other hosts of the file, which are lost."""

    def orders_in_roles(self, orders: list[WorkerOrder], roles: Roles) -> list[WorkerOrder]:
        """The orders to the hosts of a round whose processes have roles."""

    def hello_fields(self) -> Message:
        """What a supervisor must know from its start on."""

    def start_fields(self, host: Host) -> Message:
        """What a host must know to start a round, beside who is in it."""

    def new_hang_watch(self) -> HangWatch:
        """For one round."""

    def outcome_of(self, cause: Failure, end: End) -> Outcome:
        """Of a round that ended because a worker failed."""

    def saved_in_words(self, kept: Kept) -> str:
        """What is there after an end, and what is lost."""

    def advice(self) -> str:
        """How to go on after an end that was not the last."""

    def conclude(self, code: int, started: float, say: Say) -> None:
        """When all is collected: what came of it."""


@dataclass(frozen=True)
class Training:
    """Our own training of a recipe."""

    job: Job
    roles: str | None = None
    """With parameter servers: what the user said of who is who."""
    can_take_in_hosts: bool = True
    stops_by_itself: bool = True
    stop_seconds: float | None = None
    stopping: str = "saving a checkpoint on all hosts, then stopping (once more: end at once)"

    @property
    def run(self) -> RunDirectory:
        return self.job.run

    @property
    def num_procs(self) -> int:
        return self.job.num_procs

    @property
    def command(self) -> str:
        return self.job.command

    @property
    def guard(self) -> GuardSettings:
        return self.job.recipe.guard

    @property
    def min_hosts(self) -> int | None:
        return self.job.recipe.hosts.min

    @property
    def device(self) -> str:
        return self.job.recipe.device

    @property
    def purpose(self) -> Purpose:
        return Purpose(self.job.recipe, self.run.path, quick=True)

    def claim(self, say: Say) -> AbstractContextManager[None]:
        return claim_run(self.job, say)

    def refuse_processes(self, num_procs: int) -> None:
        if not self.job.recipe.strategy.has_servers:
            refuse_too_many_processes(self.job.recipe, num_procs)

    def place(
        self, hosts: Sequence[Host], num_procs: Sequence[int], absent: Sequence[str] = ()
    ) -> Placement | None:
        recipe = self.job.recipe
        if not recipe.strategy.has_servers:
            return None
        names = [host.name for host in hosts]
        counts = dict(zip(names, num_procs, strict=True))
        pinned = {host.name: host.roles for host in hosts}
        return place(recipe, names, counts, self.roles, pinned, absent)

    def orders_in_roles(self, orders: list[WorkerOrder], roles: Roles) -> list[WorkerOrder]:
        token = new_token()
        return [in_roles(order, roles, self.job.recipe, token) for order in orders]

    def hello_fields(self) -> Message:
        return {"script": None}

    def start_fields(self, _host: Host) -> Message:
        return {
            **self.hello_fields(),
            "recipe": config.to_yaml(config.dump(self.job.recipe)),
            "project": as_question(self.job.recipe.workload),
            "variables": exact_environment(self.job.recipe.deterministic),
        }

    def new_hang_watch(self) -> HangWatch:
        return TrainingHangs(self.guard.hang_seconds)

    def outcome_of(self, cause: Failure, _end: End) -> Outcome:
        if cause.is_mistake:
            return Outcome("mistake", cause.message)
        return Outcome("fault", cause.text, cause.key if cause.state else None)

    def saved_in_words(self, kept: Kept) -> str:
        step = kept.newest_step
        return f"saved at step {step:,}" if step >= 0 else "nothing was saved yet"

    def advice(self) -> str:
        return f"Go on with:\n  {self.command}"

    def conclude(self, code: int, started: float, say: Say) -> None:
        if code == 0:
            say(printable(ending_in_words(self.run, started)))


@dataclass(frozen=True)
class TrainingHangs:
    """Our workers tell every phase, so what looks like a hang is one: the round ends."""

    hang_seconds: float

    def look(self, states: Sequence[RankState], slowest_step_seconds: float) -> HangNews | None:
        hang = find_hang(states, self.hang_seconds, slowest_step_seconds)
        return HangNews(hang.text, ends_round=True) if hang else None
