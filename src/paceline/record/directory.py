"""Opening a run directory: whether it is one that this version reads, and whether it is trained."""

import fcntl
import json
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.record.fields import FieldChecks
from paceline.record.schema import (
    ENVIRONMENT_FIELDS,
    LAUNCH_FIELDS,
    SCHEMA,
    SCRIPT_FIELDS,
    RunDirectory,
)


def require_run(path: Path) -> RunDirectory:
    """The run at a path, or a UserError: it is none, or of a newer version than this one."""
    run = RunDirectory(path)
    if not run.exists():
        raise UserError(
            f"{path} is not a run directory",
            "give the --run of a `paceline train` or `paceline run`",
        )
    refuse_newer(run)
    return run


def refuse_newer(run: RunDirectory) -> None:
    """What a later schema means cannot be known, so it is not guessed."""
    environment = read_environment(run)
    schema = environment.get("schema", 1)
    if schema > SCHEMA:
        raise UserError(
            f"{run.path} was written by Paceline {environment.get('paceline', '?')}: its schema is "
            f"{schema}, this version reads up to {SCHEMA}",
            "use the version that wrote it, or a newer one",
        )


def read_environment(run: RunDirectory) -> dict[str, Any]:
    return FieldChecks(ENVIRONMENT_FIELDS).of(_read_json(run.environment))


def read_script(run: RunDirectory) -> dict[str, Any]:
    """What was run, of a script that was observed."""
    return FieldChecks(SCRIPT_FIELDS).of(_read_json(run.script))


def read_launch(run: RunDirectory) -> dict[str, Any]:
    """Who trains this run, and how to reach it."""
    return FieldChecks(LAUNCH_FIELDS).of(_read_json(run.launch))


def _read_json(path: Path) -> dict[str, Any]:
    """A small JSON file; empty where it is absent, damaged or no object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def is_being_trained(run: RunDirectory) -> bool | None:
    """Whether a launcher holds the run's lock; None where that cannot be known."""
    try:
        with run.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
