"""Where data lives on this machine, and what goes wrong when writing there.

No data set is known here by name, and nothing is downloaded or read.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.config import is_path
from paceline.errors import UserError
from paceline.files import NO_SPACE, NOT_ALLOWED, expand_home, user_cache
from paceline.units import format_bytes

_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.EEXIST)


def data_home() -> Path:
    """PACELINE_DATA wins, so a cluster can share one copy; else the user's cache."""
    if named := os.environ.get("PACELINE_DATA"):
        return expand_home(named)
    return user_cache()


def data_directory(name_or_path: str) -> Path:
    """'cifar10' is a directory of the data home; 'sets/cifar10', './x' and '~/x' are paths."""
    if is_path(name_or_path):
        return expand_home(name_or_path)
    return data_home() / name_or_path


def stand_in_name(task: str) -> str:
    """What `paceline data TASK --from stand-in` calls its data; real data has the task's name."""
    return f"{task}-stand-in"


def name_of_data(directory: Path) -> str:
    """What a user writes after `data=`: the name of a directory in the data home, or a path."""
    if directory.parent.absolute() == data_home().absolute():
        return directory.name
    return str(directory)


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn what a user can put right about a disk into a UserError; the rest stays as it is."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(
                f"no space left on the disk of {directory} ({_free_text(directory)})",
                "make room, or choose a directory on another disk (--to, or PACELINE_DATA)",
            ) from error
        if error.errno in NOT_ALLOWED:
            raise UserError(
                f"cannot write to {directory}: {error.strerror}",
                "choose a directory that you may write to (--to, or PACELINE_DATA)",
            ) from error
        if error.errno in _NOT_A_DIRECTORY:
            raise UserError(
                f"cannot write to {directory}: {error.filename} is in the way",
                "remove it, or choose another directory (--to, or PACELINE_DATA)",
            ) from error
        raise


def require_space(directory: Path, needed_bytes: int) -> None:
    """Refuse before hours of downloading rather than after them."""
    free_bytes = shutil.disk_usage(_nearest_existing(directory)).free
    if free_bytes < needed_bytes:
        raise UserError(
            f"{directory} needs {format_bytes(needed_bytes)} and its disk has only "
            f"{format_bytes(free_bytes)} free",
            "make room, or choose a directory on another disk (--to, or PACELINE_DATA)",
        )


def _free_text(directory: Path) -> str:
    return f"{format_bytes(shutil.disk_usage(_nearest_existing(directory)).free)} free"


def _nearest_existing(directory: Path) -> Path:
    here = directory.absolute()
    while not here.exists():
        here = here.parent
    return here
