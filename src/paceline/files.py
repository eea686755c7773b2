"""Files and directories that are complete or absent, also after a kill, a full disk or a power cut.

Everything is written aside, flushed to the disk, and renamed: readers see what was there before or
all of what is new. What is in a file is not known here.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import itertools
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from paceline.errors import UserError

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, a quota, a limit on the size of files."""

NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

# What storage answers that cannot lock, or cannot flush a directory.
_NO_LOCKS: Final = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_NO_FLUSH: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)


@contextmanager
def whole_file(path: Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` when the block ends well.

    `durable=False` is for what is written every second and means nothing after a power cut: readers
    still see it whole, but nobody waits for the disk.
    """
    handle, aside = _open_aside(path)
    with _naming(path), os.fdopen(handle, "wb") as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
    if durable:
        flush_directory(path.parent)


def write_whole(path: Path, content: str | bytes, durable: bool = True) -> None:
    """Replace a file as a whole; text is written as UTF-8."""
    with whole_file(path, durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def move_into_place(aside: Path, path: Path) -> None:
    """Give a file that was written elsewhere on the same disk its name, once it is on the disk."""
    flush_file(aside)
    aside.replace(path)
    flush_directory(path.parent)


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """An empty directory to fill that takes the place of `path` when the block ends well.

    For one writer at a time: what an earlier one left behind is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    aside.mkdir()
    try:
        yield aside
        replace_directory(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def replace_directory(aside: Path, path: Path) -> None:
    """Two renames on one disk: the old one, if there is one, is there until the new one is."""
    flush_tree(aside)
    doomed = path.with_name(f".{path.name}.removed")
    if path.exists():
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
    aside.rename(path)
    flush_directory(path.parent)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Renamed first: a removal that is killed midway must not leave half of it under its name."""
    doomed = path.with_name(f".{path.name}.removed")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def expand_home(path: str | Path) -> Path:
    """`~` and `~user` spelled out; in a container the user may have no home at all."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(
            f"{path}: the home directory is not known",
            "set HOME, or give a path without '~' (for data: PACELINE_DATA or XDG_CACHE_HOME)",
        ) from error


def user_cache() -> Path:
    """What Paceline may lose and make again: `~/.cache/paceline` where nothing else is said."""
    return expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "paceline"


def disk_problem(error: OSError) -> UserError | None:
    """What a user can put right about a disk; None for everything else."""
    place = error.filename or "to the disk"
    if error.errno in NO_SPACE:
        return UserError(
            f"cannot write {place}: {error.strerror}", "make room, and run the command again"
        )
    if error.errno in NOT_ALLOWED and error.filename:
        return UserError(f"cannot open {place}: {error.strerror}", "check its permissions")
    return None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_directory(path: Path) -> None:
    """Names are on the disk only when their directory is; some storage keeps them on its own."""
    try:
        flush_file(path)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise


def flush_tree(directory: Path) -> None:
    """Every file and every name in it."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                flush_file(path)
        flush_directory(Path(folder))


def flush_filesystem(directory: Path) -> None:
    """All that was written to the disk of this directory: cheaper than thousands of files alone."""
    sync_one = getattr(ctypes.CDLL(None), "syncfs", None) if sys.platform == "linux" else None
    if sync_one is None:
        os.sync()
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        if sync_one(handle) != 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(directory))
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """`write` does not say which file the disk was too full for."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE and error.filename is None:
            error.filename = str(path)
        raise


def _open_aside(path: Path) -> tuple[int, Path]:
    """An empty file beside `path` that no living writer has.

    Names are numbered and used again, and a writer's lock ends with it: so what a killed one left
    is written over by the next, and nothing piles up.
    """
    for number in itertools.count():
        aside = path.with_name(f".{path.name}.{number}.part")
        try:
            handle = _claim(aside)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            own = f".{path.name}.{os.getpid()}-{threading.get_ident()}.part"
            aside = path.with_name(own)
            handle = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        if handle is not None:
            return handle, aside
    raise AssertionError("numbers do not end")


def _claim(aside: Path) -> int | None:
    """None if somebody else has it, or had it until it took its place just now."""
    try:
        handle = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:
        if os.path.lexists(aside):
            return None  # another user's, or no file at all
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(os.fstat(handle), aside.stat())
        if is_ours:
            os.ftruncate(handle, 0)
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None
