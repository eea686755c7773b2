"""A directory of prepared data: what may be replaced, what is whole, how it takes its place."""

import errno
import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.card import CARD_NAME, read_card, spoilt
from paceline.data.progress import Say
from paceline.errors import UserError
from paceline.files import replace_directory, sha256_of, write_whole

_SHOWN = 3
_KEY_NAME = "key.txt"
_LOCK_NAME = "lock"

Card = dict[str, Any]
IsWhole = Callable[[Path, Card], bool]


def refuse_foreign(to: Path, workload: str, ours: set[str]) -> None:
    """What is in the directory will be replaced: so nothing may be there that is not ours."""
    if not to.exists():
        return
    if not to.is_dir():
        raise UserError(f"{to} is not a directory", "name another place with --to")
    found = _workload_of(to) or workload
    if found != workload:
        raise UserError(
            f"{to} holds data of the workload '{found}'", "name another directory with --to"
        )
    foreign = sorted({file.name for file in to.iterdir()} - ours)
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise UserError(
            f"{to} is not empty: it holds {', '.join(foreign[:_SHOWN])}{more}",
            "name another directory with --to; it may exist only if it is empty",
        )


def _workload_of(directory: Path) -> str | None:
    """None without a card that can be read: the file names decide then."""
    if not (directory / CARD_NAME).is_file():
        return None
    try:
        return str(read_card(directory)["workload"])
    except UserError:
        return None


def is_intact(path: Path, described: dict[str, Any]) -> bool:
    """Whether a file is what its card says."""
    return path.is_file() and (
        path.stat().st_size == described["bytes"] and sha256_of(path) == described["sha256"]
    )


def is_done(
    to: Path, key: str, summary: Callable[[Path], str], say: Say, is_whole: IsWhole | None = None
) -> bool:
    """Whether `to` holds, whole, what this source and these options make; says what it found."""
    if not (to / CARD_NAME).is_file():
        return False
    try:
        card = read_card(to)
        is_same = card["source"]["key"] == key
        if is_same and (is_whole or _all_intact)(to, card):
            say(f"nothing to do: {summary(to)}")
            return True
    except (UserError, KeyError, TypeError, OSError):
        is_same = True
    reason = "is damaged" if is_same else "was prepared from another source or with other options"
    say(f"{to} {reason}: making it anew")
    return False


def _all_intact(to: Path, card: Card) -> bool:
    return all(is_intact(to / name, file) for name, file in card["arrays"].items())


def open_array(directory: Path, name: str, card: Card) -> npt.NDArray[Any]:
    """An array of prepared data, memory-mapped, once it has the size its card says."""
    path = directory / name
    check_size(directory, name, card)
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise spoilt(directory, card["workload"], f"{name} cannot be read ({error})") from error
    return array


def check_size(directory: Path, name: str, card: Card) -> None:
    try:
        expected_bytes = card["arrays"][name]["bytes"]
        num_bytes = (directory / name).stat().st_size
    except (OSError, KeyError, TypeError) as error:
        raise spoilt(directory, card["workload"], f"{name} cannot be read ({error})") from error
    if num_bytes != expected_bytes:
        why = f"{name} has {num_bytes:,} bytes and not {expected_bytes:,}"
        raise spoilt(directory, card["workload"], why)


def put_in_place(new: Path, to: Path) -> None:
    """Whoever looks sees the old data or the new."""
    try:
        replace_directory(new, to)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV):
            what, fix = "is a mount point", f"name a directory in it: --to {to}/data"
        elif error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            what, fix = "was written by another process just now", "run the command again"
        else:
            raise
        raise UserError(f"{to} cannot be replaced: it {what}", fix) from error


def unfinished_beside(to: Path) -> Path:
    return to.with_name(f".{to.name}.unfinished")


@contextmanager
def directory_beside(to: Path, key: str, say: Say) -> Iterator[Path]:
    """On the disk of `to`; kept when interrupted, gone when all is done.

    What was begun for something else is of no use: the key tells.
    """
    directory = unfinished_beside(to)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is preparing {to}", "wait until it is done"
            ) from error
        key_file = directory / _KEY_NAME
        if key_file.is_file() and key_file.read_text() == key:
            say(f"going on with what an interrupted run left in {directory}")
        else:
            _empty(directory)
            write_whole(key_file, key)
        yield directory
        shutil.rmtree(directory, ignore_errors=True)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK_NAME:
            path.unlink()
