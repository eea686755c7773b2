"""The card: one JSON file beside prepared data that says what it is and where it came from.

Shared by all workloads. What a workload writes into its card is the workload's affair; here are the
file itself, its hashes, and the messages when it is missing or belongs to something else.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.data.places import data_home, stand_in_name
from paceline.errors import UserError
from paceline.files import flush_tree, sha256_of, write_whole

CARD_NAME = "card.json"
WAYS = ("web", "stand-in", "PATH")
"""What `paceline data NAME --from` takes, unless a data set says otherwise."""
_EDGE_BYTES = 1 << 16
_MOST_READ = 1000
"""Of more files than this only names and sizes count: opening each would take minutes."""


def describe_file(path: Path) -> dict[str, Any]:
    """Name, size and hash of a file, as cards hold them."""
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def fingerprint(hashes: Mapping[str, str]) -> str:
    """One short string for a whole data set; equal files give equal strings in any order."""
    lines = "".join(f"{name} {hashes[name]}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def write_card(directory: Path, card: Mapping[str, Any]) -> Path:
    """Written last, once all that it describes is on the disk: it must not promise what is not."""
    path = directory / CARD_NAME
    flush_tree(directory)
    write_whole(path, json.dumps(card, indent=2) + "\n")
    return path


def read_card(
    directory: Path, workload: str | None = None, ways: Sequence[str] = WAYS
) -> dict[str, Any]:
    """The card of a directory; with a workload named, one of that workload or a UserError."""
    path = directory / CARD_NAME
    if not path.is_file():
        raise UserError(_what_is_missing(directory), _how_to_get(directory, workload, ways))
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fix = _how_to_get(directory, workload, ways)
        raise UserError(f"cannot read {path}: {error}", fix) from error
    if not isinstance(card, dict) or not isinstance(card.get("workload"), str):
        fix = _how_to_get(directory, workload, ways)
        raise UserError(f"{path} is not a card of prepared data", fix)
    if workload is not None and card["workload"] != workload:
        raise UserError(
            f"{directory} holds data of the workload '{card['workload']}', not of '{workload}'",
            _how_to_get(data_home() / workload, workload, ways),
        )
    return card


def spoilt(directory: Path, workload: str, why: str, ways: Sequence[str] = WAYS) -> UserError:
    return UserError(
        f"the data in {directory} is damaged: {why}",
        f"prepare it again: paceline data {workload} --from {'|'.join(ways)} --to {directory}",
    )


def _what_is_missing(directory: Path) -> str:
    if not directory.exists():
        return f"there is no data directory {directory}"
    if not directory.is_dir():
        return f"{directory} is not a directory of prepared data"
    return f"{directory} holds no prepared data (no {CARD_NAME})"


def prepared_for(workload: str) -> list[str]:
    """Names in the data home that hold data of this workload."""
    found = []
    for path in sorted(data_home().glob(f"[!.]*/{CARD_NAME}")):
        with suppress(UserError):
            if read_card(path.parent)["workload"] == workload:
                found.append(path.parent.name)
    return found


def _how_to_get(directory: Path, workload: str | None, ways: Sequence[str]) -> str:
    """What is here already, then what makes the data that was asked for, and never a circle."""
    if workload is None:
        return "prepare it: paceline data TASK --from web|stand-in|PATH"
    options = []
    if there := prepared_for(workload):
        options.append(
            f"use what is prepared here: {' or '.join(f'data={name}' for name in there)}"
        )
    options.append(f"prepare it: {_commands(directory, workload, ways)}")
    drawn = stand_in_name(workload)
    if directory == data_home() / workload and drawn not in there:
        made = f"paceline data {workload} --from stand-in"
        options.append(f"practise on made-up data: {made}, then train with data={drawn}")
    return "\n   or: ".join(options)


def _commands(directory: Path, workload: str, ways: Sequence[str]) -> str:
    """Real data is called like the task, the stand-in TASK-stand-in; others need --to."""
    home, command = data_home(), f"paceline data {workload} --from"
    if directory == home / stand_in_name(workload):
        return f"{command} stand-in"
    to = f" --to {directory}"
    if directory != home / workload:
        return f"{command} {'|'.join(ways)}{to}"
    usual = [way for way in ways if way not in ("stand-in", "PATH")]
    own = f"{command} PATH{to}   (your own files)"
    return "\n   or: ".join([*(f"{command} {way}" for way in usual), own])


def data_fingerprint(data: Path | None, sizes: Mapping[str, int]) -> str:
    """Prepared data says it itself. Of other files names, sizes, beginnings and ends count; of data
    that a task makes itself, how many samples it has."""
    if data is None:
        return hashlib.sha256(json.dumps(dict(sizes), sort_keys=True).encode()).hexdigest()[:16]
    if (data / CARD_NAME).is_file():
        return str(read_card(data).get("fingerprint", ""))
    files = sorted(_files(data))
    total = hashlib.sha256()
    for path in files:
        named = path.name if path == data else str(path.relative_to(data))
        total.update(f"{named} {path.stat().st_size}\n".encode())
        if len(files) <= _MOST_READ:
            total.update(_edges(path))
    return total.hexdigest()[:16]


def _files(data: Path) -> Iterator[Path]:
    if data.is_file():
        yield data
        return
    for path in data.rglob("*"):
        if path.is_file() and not any(
            part.startswith(".") or part in ("__pycache__", "runs")
            for part in path.relative_to(data).parts
        ):
            yield path


def _edges(path: Path) -> bytes:
    with path.open("rb") as file:
        first = file.read(_EDGE_BYTES)
        file.seek(max(path.stat().st_size - _EDGE_BYTES, 0))
        return first + file.read(_EDGE_BYTES)
