"""Judgements about files: the user's code, and the libraries that all processes load.

Pure functions from what was found to rows of the table, as in `hosts.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.doctor.rows import Facts, Row, all_of, usual
from paceline.units import format_bytes

_MOST_SHOWN = 3


@dataclass(frozen=True)
class Words:
    """How a row is called, and what it says."""

    what: str
    missing: str
    remedy: str


_TASK = Words(
    "task",
    "the code of your task is not there",
    "run here, in the directory of your code: paceline hosts push",
)
_SCRIPT = Words(
    "script",
    "your script is not there",
    "add --push, which sends its folder; or put it on storage that all hosts share",
)


def judge_project(found: Mapping[str, Facts]) -> list[Row]:
    """The user's own code must be there, and be the same; a shipped task has none."""
    return _judge_code(found, _TASK)


def judge_script(found: Mapping[str, Facts]) -> list[Row]:
    return _judge_code(found, _SCRIPT)


def _judge_code(found: Mapping[str, Facts], words: Words) -> list[Row]:
    own = {name: facts["project"] for name, facts in found.items() if facts.get("project")}
    rows = []
    for name, project in own.items():
        if project["path"] is None:
            rows.append(Row(name, words.what, "fail", words.missing, words.remedy))
        elif project["different"]:
            files = ", ".join(project["different"][:_MOST_SHOWN])
            shown = f"{project['path']}: other code than here ({files})"
            rows.append(Row(name, words.what, "fail", shown, words.remedy))
    if rows or not own:
        return rows
    places = sorted({str(project["path"]) for project in own.values()})
    return [Row(all_of(own), words.what, "ok", f"{', '.join(places)}, the same code")]


def judge_modules(found: Mapping[str, Facts]) -> list[Row]:
    """What the script imports before it does anything else."""
    missing = {name: facts.get("missing_modules") or [] for name, facts in found.items()}
    rows = [
        Row(
            name,
            "modules",
            "fail",
            f"{found[name]['executable']} has no module {', '.join(modules)}",
            f"install it there: {found[name]['executable']} -m pip install {' '.join(modules)}",
        )
        for name, modules in missing.items()
        if modules
    ]
    return rows or [Row(all_of(found), "modules", "ok", "all that the script imports is there")]


def judge_libraries(found: Mapping[str, Facts]) -> list[Row]:
    """Two builds can have one version number: the files themselves must be the same."""
    having = {name: facts.get("libraries") or {} for name, facts in found.items()}
    having = {name: libraries for name, libraries in having.items() if libraries}
    rows = []
    for library in sorted({library for libraries in having.values() for library in libraries}):
        files = {name: libraries.get(library) for name, libraries in having.items()}
        most = usual([_contents(file) for file in files.values() if file])
        for name, file in files.items():
            if file is None or _contents(file) != most:
                rows.append(_other_library(name, library, file))
    if rows or not having:
        return rows
    some = next(iter(having.values()))
    size = format_bytes(sum(file["bytes"] for file in some.values()))
    shown = f"{len(some)} files of torch and NCCL, {size}, the same on all"
    return [Row(all_of(having), "libraries", "ok", shown)]


def _contents(file: Facts) -> tuple[int, str]:
    return int(file["bytes"]), str(file["hash"])


def _other_library(name: str, library: str, file: Facts | None) -> Row:
    remedy = "install torch there as on the others: paceline hosts push"
    if file is None:
        return Row(name, "libraries", "fail", f"has no {library}, which others have", remedy)
    shown = f"{file['path']} ({format_bytes(file['bytes'])}) is another file than on the others"
    return Row(name, "libraries", "fail", shown, remedy)
