"""A user's script as a program on many hosts: what the rooms of rounds and hosts ask about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.doctor.examination import Purpose
from paceline.errors import Say
from paceline.hosts.file import Host
from paceline.launch.claim import next_attempt
from paceline.launch.failures import Failure
from paceline.launch.remote.program import End, HangWatch, Kept
from paceline.launch.remote.restart import Outcome
from paceline.launch.script.claim import claim_script_run, remove_unused
from paceline.launch.script.command import ScriptCommand
from paceline.launch.script.ending import conclude
from paceline.launch.script.hangs import END_SECONDS, HANG_SECONDS, ScriptHangs
from paceline.launch.script.remote.naming import name_failure
from paceline.launch.script.remote.progress import Progress, loss_in_words, newest
from paceline.launch.script.remote.project import ScriptProject
from paceline.order import WorkerOrder
from paceline.record.directory import read_script
from paceline.record.schema import RunDirectory
from paceline.settings import GuardSettings
from paceline.strategies.roles import Roles

Message = dict[str, Any]


@dataclass(frozen=True)
class ScriptOnHosts:
    project: ScriptProject
    run: RunDirectory
    num_procs: int
    command: str
    restarts: int = 0
    hang_timeout_seconds: float = END_SECONDS
    min_hosts: int | None = None
    device: str = "auto"
    can_take_in_hosts: bool = False
    stops_by_itself: bool = False
    stop_seconds: float | None = 30.0
    stopping: str = "ending the script on all hosts (SIGTERM; once more: end at once)"

    @property
    def guard(self) -> GuardSettings:
        return GuardSettings(hang_seconds=HANG_SECONDS + 5, max_restarts=self.restarts)

    @property
    def purpose(self) -> Purpose:
        return Purpose(None, self.run.path, quick=True, script=self.project.question())

    @contextmanager
    def claim(self, say: Say) -> Iterator[None]:
        is_ours = False
        try:
            with claim_script_run(self.run, self.started_as, say):
                is_ours = True
                yield
        finally:
            if is_ours and next_attempt(self.run) == 1:  # refused before anything was started
                remove_unused(self.run)

    @property
    def started_as(self) -> ScriptCommand:
        project = self.project
        script = f"-m {project.words[1]}" if project.words[0] == "-m" else str(project.path)
        return ScriptCommand(project.words, script, project.arguments, self.num_procs or None)

    def place(
        self, _hosts: Sequence[Host], _num_procs: Sequence[int], _absent: Sequence[str] = ()
    ) -> None:
        """A script has no roles that we know of."""

    def orders_in_roles(self, orders: list[WorkerOrder], _roles: Roles) -> list[WorkerOrder]:
        return orders

    def refuse_processes(self, num_procs: int) -> None:
        """A script knows best how many it can be."""

    def hello_fields(self) -> Message:
        return {"script": {"words": list(self.project.words)}}

    def start_fields(self, _host: Host) -> Message:
        words = {"words": list(self.project.words), "document": read_script(self.run)}
        return {"script": words, "project": self.project.question(), "variables": {}}

    def new_hang_watch(self) -> HangWatch:
        return ScriptHangs(self.run.path, HANG_SECONDS, self.hang_timeout_seconds)

    def outcome_of(self, cause: Failure, end: End) -> Outcome:
        code = cause.exit_code if cause.exit_code >= 0 else 128 - cause.exit_code
        text = name_failure(cause, end.states, end.full_disks)
        return Outcome("fault", text, cause.key if cause.state else None, code or 1)

    def saved_in_words(self, kept: Kept) -> str:
        told = [message["progress"] for message in kept.looked if message.get("progress")]
        return loss_in_words(newest([Progress.from_document(d) for d in told]), kept.last_step)

    def advice(self) -> str:
        return f"Start it again with:\n  {self.command}"

    def conclude(self, code: int, started: float, say: Say) -> None:
        attempt = next_attempt(self.run) - 1
        conclude(self.run, code, attempt, say)
        if attempt == 1:
            remove_unused(self.run)
