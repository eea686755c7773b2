"""The card: one JSON file beside prepared data that says what it is and where it came from.

Shared by all workloads. What a workload writes into its card is the workload's affair; here are the
file itself, its hashes, and the messages when it is missing or belongs to something else.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
        raise UserError(_what_is_missing(directory), _how_to_prepare(workload, ways))
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", _how_to_prepare(workload, ways)) from error
    if not isinstance(card, dict) or not isinstance(card.get("workload"), str):
        raise UserError(f"{path} is not a card of prepared data", _how_to_prepare(workload, ways))
    if workload is not None and card["workload"] != workload:
        raise UserError(
            f"{directory} holds data of the workload '{card['workload']}', not of '{workload}'",
            f"name another directory with data=DIR, or {_how_to_prepare(workload, ways)}",
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


def _how_to_prepare(workload: str | None, ways: Sequence[str]) -> str:
    name = workload or "WORKLOAD"
    first, *others = [f"--from {way}" for way in ways]
    return (
        f"run: paceline data {name} {first}   (or {', or '.join(others)}; "
        "--to DIR where it should be)"
    )


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
