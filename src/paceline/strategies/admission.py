"""Who may train in a run: a worker with other code or other data would train something else."""

from dataclasses import asdict, dataclass, field
from typing import Any

import paceline
from paceline.errors import UserError
from paceline.project import changed_files, find_project
from paceline.tasks.contract import Task
from paceline.train.measure.user_code import listed


@dataclass(frozen=True)
class Identity:
    """What must be the same at the chief and at every worker."""

    host: str
    version: str
    data: str
    files: dict[str, str] = field(default_factory=dict)
    """Of the user's own task, by name their hashes."""

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


def identity_of(task: Task, host: str) -> Identity:
    project = find_project(task.recipe.workload)
    files = dict(project.files) if project is not None else {}
    return Identity(host, paceline.__version__, task.data_fingerprint, files)


def refuse_stranger(chief: Identity, worker: Identity) -> None:
    """Raise what the worker then tells its user."""
    who = f"the worker on {worker.host}"
    if worker.version != chief.version:
        raise UserError(
            f"{who} has Paceline {worker.version}, and the chief on {chief.host} {chief.version}",
            "install one version on all hosts: paceline hosts push",
        )
    different = changed_files(chief.files, worker.files)
    if different:
        raise UserError(
            f"the code of your task on {worker.host} differs from that of the chief on "
            f"{chief.host}: {listed(different)}",
            "send it to all hosts: paceline hosts push",
        )
    if worker.data != chief.data:
        raise UserError(
            f"the data on {worker.host} differs from that of the chief on {chief.host} "
            f"({worker.data[:12]}, not {chief.data[:12]})",
            "copy it from the chief's host to all others",
        )
