"""The user's code in a run: the same in all processes, and what of it changed between attempts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import UserError
from paceline.project import changed_files, find_project
from paceline.record.schema import RunDirectory
from paceline.tasks.contract import Task
from paceline.world import World

_SHOWN = 3


def describe_code(workload: str) -> dict[str, Any] | None:
    """For `environment.json`; None of a shipped task."""
    project = find_project(workload)
    if project is None:
        return None
    return {
        "root": str(project.root),
        "fingerprint": project.fingerprint,
        "files": dict(sorted(project.files.items())),
    }


def refuse_different_hosts(task: Task, world: World) -> None:
    """Other code or data on another host would train something that nobody wrote."""
    project = find_project(task.recipe.workload)
    if project is None:
        return
    told = world.gather_values([world.host, project.files, task.data_fingerprint])
    first_host, first_files, first_data = told[0]
    for host, files, data in told[1:]:
        different = changed_files(first_files, files)
        if different:
            raise UserError(
                f"the code of your task on {host} differs from that on {first_host}: "
                f"{listed(different)}",
                "send it to all hosts: paceline hosts push",
            )
        if data != first_data:
            raise UserError(
                f"the data on {host} differs from that on {first_host} ({data}, not {first_data})",
                "copy it from one host to all others",
            )


def find_changes(run: RunDirectory, workload: str) -> str | None:
    """What changed since the attempt before, in words; asked before its record is replaced."""
    before, now = _files_before(run), find_project(workload)
    if now is None or before is None:
        return None
    different = changed_files(dict(before), now.files)
    if not different:
        return None
    return f"the code of your task has changed since the last attempt: {listed(different)}"


def _files_before(run: RunDirectory) -> Mapping[str, str] | None:
    try:
        stored = json.loads(run.environment.read_text(encoding="utf-8"))
        files = stored["project"]["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return files if isinstance(files, dict) else None


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
