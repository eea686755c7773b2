"""A user's script as a program on many hosts: what the rooms of rounds and hosts ask about it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from paceline.doctor.examination import Purpose
from paceline.errors import Say
from paceline.hosts.file import Host
from paceline.launch.claim import only_one
from paceline.launch.failures import Failure
from paceline.launch.remote.program import End, HangWatch
from paceline.launch.remote.restart import Outcome
from paceline.launch.script.hangs import END_SECONDS, HANG_SECONDS, ScriptHangs
from paceline.launch.script.naming import name_failure
from paceline.launch.script.progress import Progress, loss_in_words, newest
from paceline.launch.script.project import ScriptProject
from paceline.record.schema import RunDirectory
from paceline.record.writer import prepare_directory, write_file
from paceline.settings import GuardSettings

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
    stopping: str = "ending the script on all hosts (SIGTERM; once more: end at once)"
    progress: dict[str, int] = field(default_factory=dict)

    @property
    def guard(self) -> GuardSettings:
        return GuardSettings(hang_seconds=HANG_SECONDS + 5, max_restarts=self.restarts)

    @property
    def purpose(self) -> Purpose:
        return Purpose(None, self.run.path, quick=True, script=self.project.question())

    def claim(self, say: Say) -> AbstractContextManager[None]:
        return _claim(self, say)

    def refuse_processes(self, num_procs: int) -> None:
        """A script knows best how many it can be."""

    def hello_fields(self) -> Message:
        return {"script": {"words": list(self.project.words), "document": self.document()}}

    def start_fields(self, _host: Host) -> Message:
        fields = {"project": self.project.question(), "variables": {}}
        return {**self.hello_fields(), **fields}

    def document(self) -> str:
        """What the run directory says about the script."""
        facts = {
            "kind": "observed",
            "script": str(self.project.root / self.project.script),
            "arguments": list(self.project.arguments),
            "command": self.command,
            "directory": str(self.project.root),
            "python": "of each host",
            "num_procs": self.num_procs,
        }
        return json.dumps(facts) + "\n"

    def new_hang_watch(self) -> HangWatch:
        return ScriptHangs(HANG_SECONDS, self.hang_timeout_seconds)

    def outcome_of(self, cause: Failure, end: End) -> Outcome:
        code = cause.exit_code if cause.exit_code >= 0 else 128 - cause.exit_code
        text = name_failure(cause, end.states, end.full_disks)
        return Outcome("fault", text, cause.key if cause.state else None, code or 1)

    def saved_in_words(self, looked: Sequence[Message], _newest_step: int) -> str:
        known = [Progress.from_document(m["progress"]) for m in looked if m.get("progress")]
        return loss_in_words(newest(known))

    def advice(self) -> str:
        return f"Start it again with:\n  {self.command}"

    def ending(self, started: float) -> str:
        return f"finished; `paceline report {self.run.path}` says where the time went"


@contextmanager
def _claim(program: ScriptOnHosts, say: Say) -> Iterator[None]:
    prepare_directory(program.run.path)
    with only_one(program.run):
        write_file(program.run.script, program.document())
        yield
